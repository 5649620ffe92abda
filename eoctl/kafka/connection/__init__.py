"""Connections to brokers: the wire, TLS, SASL, client properties, confluent-kafka."""
