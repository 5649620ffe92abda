"""Stores in which applications keep positions: Kafka groups, topics, ZooKeeper, SQL, files."""
