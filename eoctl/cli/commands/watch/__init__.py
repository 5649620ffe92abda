"""`check`, `exporter` and `tui`: what a cluster looks like all day, to programs and to people."""
