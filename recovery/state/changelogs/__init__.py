"""The formats of changelogs: which record is the latest word on which key."""
