"""Runs a real ZooKeeper server out of the jars that PySpark ships: no download beyond pip."""
