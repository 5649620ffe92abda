"""How eoctl talks to Kafka: the wire connection, collectors of facts, confluent-kafka."""
