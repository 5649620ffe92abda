"""Beside the list of the overview: what was held over time, what ends next, what was changed."""

STALE_INTERVALS = 3
"""After so many, what was seen is stale, and a drawing has a gap."""
