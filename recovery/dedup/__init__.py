"""Dedup: which records of a topic repeat an earlier one."""
