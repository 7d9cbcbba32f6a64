"""Where a message is: its way through the logs of both datacenters into the warehouse."""
