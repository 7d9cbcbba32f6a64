"""Bounded reads: which byte ranges of which partitions to read, and reading one of them."""
