"""Upkeep of tables, and the schedule that runs jobs at their times."""
