"""Work with merge logs: their entries, what a replay writes, what `merge verify` finds."""
