"""`status`, `why`, `txn hanging`: collect facts twice, and judge them by the rules."""
