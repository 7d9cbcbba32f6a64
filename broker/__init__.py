"""The broker: Kafka 0.7.2 on the wire and on disk.

`server` runs the loop, `connection` is one socket, `handlers` decide, `sending` sends, and `log/`
stores. Nothing outside this package imports it but the command line.
"""
