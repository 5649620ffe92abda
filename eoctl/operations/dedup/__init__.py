"""`dedup`: the clean copy of a topic, here or on Spark."""
