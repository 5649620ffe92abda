"""eoctl: what an operator reaches for when exactly-once breaks in Kafka."""

__version__ = "0.2.0"
