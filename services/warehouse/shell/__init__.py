"""Interactive queries: one SQL statement, or a Python prompt."""
