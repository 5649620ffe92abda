"""Where the dashboard's frames come from: a cluster, a bundle, a recording."""
