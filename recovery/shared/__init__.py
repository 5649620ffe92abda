"""What several capabilities stand on: cuts, digests, record ids, the application file."""
