"""One change at a time: locks on this host and in ZooKeeper."""
