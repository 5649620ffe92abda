"""`restart`: turn observations into a plan; apply, verify and undo it."""
