"""A member of an online consumer group: reads events as they come and says how fresh they are."""
