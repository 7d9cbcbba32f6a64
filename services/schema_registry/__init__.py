"""The schema registry: Confluent's REST paths over SQLite.

`registration.py` decides, `app.py` wires.
"""
