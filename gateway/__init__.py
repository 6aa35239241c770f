"""Anoman gateway: a transparent streaming reverse proxy for LLM providers."""

__version__ = "0.1.0"
