"""The audit's books: counts, read progress, delays and heartbeats, in memory and in SQLite."""
