"""One command's session with a cluster, and the signals that end it."""
