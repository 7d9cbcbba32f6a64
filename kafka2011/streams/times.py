"""Durations as Spark writes them."""

EVENT_TIME = "event_time"


def interval(duration_ms: int) -> str:
    """A duration for Spark. Raises ValueError if it is negative."""
    if duration_ms < 0:
        raise ValueError(f"a duration of {duration_ms} ms: it must not be negative")
    return f"{duration_ms} milliseconds"
