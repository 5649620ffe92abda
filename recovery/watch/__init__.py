"""Judge thresholds for cron, and produce the metrics that `check` writes."""
