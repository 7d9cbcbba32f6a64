"""The broker: Kafka 0.7.2 on the wire and on disk.

`network/server` runs the loop, `network/connection` is one socket, `kafka07/handlers` decide,
`network/sender` sends, and `log/` stores. Only the command line imports it.
"""
