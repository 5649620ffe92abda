"""From Spark to Kafka exactly once: rows are staged, then sent by attempts that commit once."""
