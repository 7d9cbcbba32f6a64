"""The audit's books: counts, read positions, delays and heartbeats, in memory and in SQLite."""
