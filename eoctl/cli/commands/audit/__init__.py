"""`audit sequences|transactions|duplicates|mirror`."""
