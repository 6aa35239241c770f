"""Personal data: numbers, addresses and accounts of people in Indonesia, Singapore and everywhere."""

from gateway.guards.pii.engine import PiiEngine

__all__ = ["PiiEngine"]
