"""`check` and `exporter`: what a cluster looks like to cron, Prometheus and Nagios."""
