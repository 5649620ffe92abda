"""`audit`: resolve what to read, have an engine read it, and build the answer."""
