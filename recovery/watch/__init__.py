"""Thresholds for cron, and the metrics that `check` writes."""
