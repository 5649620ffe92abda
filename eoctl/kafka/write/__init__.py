"""The requests that change a cluster: markers, commits, transactions of records."""
