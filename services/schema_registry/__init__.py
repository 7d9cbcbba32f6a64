"""The schema registry: Confluent's REST paths over SQLite. `core.py` decides, `app.py` wires."""
