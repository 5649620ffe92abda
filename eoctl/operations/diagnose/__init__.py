"""`status`, `why`, `txn hanging`: facts collected twice, and judged by the rules."""
