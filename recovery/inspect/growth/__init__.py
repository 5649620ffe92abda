"""Count what grows: producer ids, transactional ids by prefix, and Kafka's internal topics."""
