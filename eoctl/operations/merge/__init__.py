"""`merge`: verify a merge log, plan a replay and carry it out."""
