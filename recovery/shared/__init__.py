"""Values that several capabilities share: cuts, digests, record ids, the application file."""
