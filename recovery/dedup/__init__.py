"""Find the records of a topic that repeat an earlier one."""
