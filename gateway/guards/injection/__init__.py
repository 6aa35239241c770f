"""Instructions that a text aims at the model although nobody entitled gave them, in English and Indonesian."""

from gateway.guards.injection.engine import InjectionEngine

__all__ = ["InjectionEngine"]
