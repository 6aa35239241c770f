"""Keys, tokens and passwords of machines, by published formats and by the words in front of them."""

from gateway.guards.credentials.engine import CredentialsEngine

__all__ = ["CredentialsEngine"]
