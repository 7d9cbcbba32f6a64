"""Upkeep of the tables: compaction, retention, vacuum."""
