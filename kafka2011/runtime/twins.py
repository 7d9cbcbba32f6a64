"""Which twin of the compiled loops to take: one rule, asked where each pair is imported."""

import os


def is_pure_wanted() -> bool:
    """Whether KAFKA2011_PURE=1 asks for the Python twins; any other text asks for nothing."""
    return os.environ.get("KAFKA2011_PURE") == "1"
