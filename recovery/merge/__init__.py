"""Merge logs: their entries, what a replay writes, and what `merge verify` finds."""
