"""The command line: parse, call one operation, render, exit status."""
