"""What a protocol builds on: `partitions` gives access to the logs, `disk_scheduler` has them
written and flushed.

Nothing here reads a socket or knows a request. A protocol's session keeps one `Appends` and calls
`Partitions`, which raises what is in `errors`.
"""
