"""Reading record batches, and what is found by reading: counts, evidence, commits, cuts."""
