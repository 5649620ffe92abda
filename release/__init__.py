"""What is shipped beside the wheel: eoctl in one file (`make binary`)."""
