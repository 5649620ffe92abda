"""The answers of all read commands together, for the dashboard and for bundles."""
