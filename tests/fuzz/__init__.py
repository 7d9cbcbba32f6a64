"""Fuzzing: structure-aware mutations of recorded bytes, for as long as it is told.

`python -m tests.fuzz` runs every target in turn and prints a table; `tests/unit/protocol/
test_fuzz.py` runs a few hundred rounds of each that needs no broker in the normal suite. A round is
a pure function of the seed and its number, so a failure is repeated by `--seed` and `--round`.
"""
