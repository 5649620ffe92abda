"""eoctl."""
