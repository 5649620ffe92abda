"""How answers look: tables, words, pages, and what scripts read."""
