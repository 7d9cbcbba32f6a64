"""A member of an online consumer group: reads new events and measures their latency."""
