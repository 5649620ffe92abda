"""`audit`: what is to be read is resolved, an engine reads it, the answer is made."""
