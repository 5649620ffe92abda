"""This machine: processes that outlive a command, and its Java."""
