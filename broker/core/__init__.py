"""What a protocol stands on: `partitions` is the way to the logs, `disk_scheduler` has them written
and flushed.

Nothing here reads a socket or knows a request. A protocol's session keeps one `Appends` and calls
`Partitions`; errors are those of `errors`.
"""
