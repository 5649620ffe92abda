"""The columns and the closing sentence of each row, once for CLI and dashboard."""
