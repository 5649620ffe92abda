"""The commands, a file per group."""
