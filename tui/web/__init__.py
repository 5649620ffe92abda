"""The dashboard in a browser: a page with a terminal, a dashboard of its own for each viewer."""
