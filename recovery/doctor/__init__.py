"""What will hurt exactly-once on a cluster before anything has happened: rules over settings."""
