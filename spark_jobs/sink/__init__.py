"""From Spark to Kafka exactly once: staged, then sent by attempts that commit once."""
