"""Questions by hand: one SQL statement, or a Python prompt."""
