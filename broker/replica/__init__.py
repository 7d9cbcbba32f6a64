"""A replica as a process: what carries out, with real sockets, logs and ZooKeeper, what
`broker.replication` decides."""
