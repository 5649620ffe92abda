"""`make trust`: the scorecard that anyone can run (`tests/trust/__main__.py`)."""
