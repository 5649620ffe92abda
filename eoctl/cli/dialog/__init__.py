"""The questions that commands ask before a change, and the words in which they tell its outcome."""
