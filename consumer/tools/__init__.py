"""Operators' tools for consumer groups: lag, state, stored offsets, and whether a rebalance is
done."""
