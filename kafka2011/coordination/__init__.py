"""ZooKeeper: paths, the registry interface and its implementation over kazoo, and typed views of
what is registered."""
