"""`merge`: a merge log verified, a replay planned and carried out."""
