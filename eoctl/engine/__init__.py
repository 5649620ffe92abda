"""The work of one task, the same on this machine and on Spark: rebuilds, dedups, audits."""
