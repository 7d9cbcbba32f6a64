"""Operators' questions about consumers: lag, state, stored offsets, whether a rebalance is done."""
