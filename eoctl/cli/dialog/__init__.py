"""What commands ask before a change, and how they tell its outcome."""
