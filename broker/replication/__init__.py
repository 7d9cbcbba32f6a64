"""What a replica decides, as a pure state machine: no I/O, no clock, no randomness.

`broker.replica` carries it out. The rules and the reasons are in docs/replication.md.
"""
