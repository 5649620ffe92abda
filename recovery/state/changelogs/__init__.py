"""The formats of changelogs: which record of a key is its latest value."""
