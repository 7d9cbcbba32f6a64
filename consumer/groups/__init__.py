"""Consumer groups: membership, rebalance, fetching threads and committed offsets of one member."""
