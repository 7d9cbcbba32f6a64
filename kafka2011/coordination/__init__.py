"""ZooKeeper: paths, the registry interface, its two implementations, and what is read from it."""
