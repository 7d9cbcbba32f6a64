"""The schedule: runs commands of kafka2011 at their times."""
