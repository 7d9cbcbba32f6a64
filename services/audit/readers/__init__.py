"""Readers of the tiers: brokers of a cluster, and the commits of the warehouse."""
