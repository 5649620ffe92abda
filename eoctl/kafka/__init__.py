"""Kafka as eoctl talks to it: wire connection, collectors of facts, and confluent-kafka's adapter."""
