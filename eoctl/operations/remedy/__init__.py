"""`txn abort|fence|resolve|apply`: plans of remedies, and how each is carried out."""
