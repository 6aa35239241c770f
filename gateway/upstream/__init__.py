"""The way to providers: the only place that knows which HTTP client library is used."""
