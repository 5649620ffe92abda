"""What one task does, on this machine or on Spark: rebuilds, dedups, audits."""
