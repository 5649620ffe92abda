"""Plans and the journal: every change is one sealed plan, and its entry says what became of it."""
