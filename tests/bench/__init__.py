"""Measures the gateway beside nginx and a bare aiohttp proxy, on one machine, in one run."""
