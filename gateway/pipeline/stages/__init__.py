"""The steps every exchange passes before a provider is asked."""
