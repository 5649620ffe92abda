"""Read record batches, and what can be found in them: counts, evidence, commits, cuts."""
