"""The rows that people and scripts read, as models: JSON, tables, the dashboard, bundles."""
