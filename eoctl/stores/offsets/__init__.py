"""Where applications keep their position: Kafka groups, topics, ZooKeeper, SQL, files."""
