"""`txn abort|fence|resolve|apply`: plan remedies, and carry them out."""
