"""`check`: compare with thresholds, for cron."""
