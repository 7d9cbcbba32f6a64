"""Loads the offline brokers' topics into Delta tables on Spark, and reports on them.

`commit` publishes a load, `columns` turns events into columns, `files` writes them, `core` decides
what to read, `load` runs one load, `app` runs the process; `report` reads the tables.
"""
