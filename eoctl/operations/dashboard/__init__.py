"""What the dashboard and a bundle ask: every read command's answer at once."""
