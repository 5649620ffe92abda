"""`restart`: from what was seen to a plan, applied, verified, undone."""
