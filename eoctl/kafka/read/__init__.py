"""Read record batches, and find in them counts, evidence, commits and cuts."""
