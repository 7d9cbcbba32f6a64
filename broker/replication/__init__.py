"""What a replica decides, as a pure state machine: no I/O, no clock, no randomness.

Nothing here is wired to the broker yet: a broker still has the only copy of its partitions. The
rules and the reasons are in docs/replication.md.
"""
