"""The sources of the dashboard's frames: a cluster, a bundle, a recording."""
