"""`check`: thresholds, for cron."""
