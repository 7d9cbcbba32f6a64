"""Which twin of the hot loops to import, compiled or pure: one rule for all pairs."""

import os


def is_pure_wanted() -> bool:
    """Whether KAFKA2011_PURE is 1, which selects the pure Python twins; other values do not."""
    return os.environ.get("KAFKA2011_PURE") == "1"
