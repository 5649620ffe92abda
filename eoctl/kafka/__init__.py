"""Kafka as eoctl talks to it: the wire connection, collectors of facts, confluent-kafka."""
