"""Decoders of what Kafka and its clients write: batches, records, state logs, checkpoints."""
