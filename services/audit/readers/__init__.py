"""Readers of the tiers: the brokers of a cluster, and the commits of the warehouse."""
