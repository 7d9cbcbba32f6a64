"""Waiting on conditions, never on durations.

Each wait has a deadline and a message that says what did not come.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

POLL_INTERVAL_S = 0.02
# Long: it costs nothing where things go well, and a busy machine is no fault.
DEADLINE_S = 240.0


def wait_until(
    condition: Callable[[], Result],
    message: str | Callable[[], str],
    timeout_s: float = DEADLINE_S,
    *,
    poll_s: float = POLL_INTERVAL_S,
) -> Result:
    """Poll `condition` until it is true and return its value; AssertionError with `message` after
    `timeout_s` seconds. `poll_s` is the pause between two evaluations."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            text = message() if callable(message) else message
            raise AssertionError(f"not within {timeout_s} s: {text}")
        pause.wait(poll_s)


def wait_for_growth(
    value: Callable[[], int],
    by: int,
    message: str,
    *,
    since: int | None = None,
    timeout_s: float = DEADLINE_S,
) -> None:
    """Wait until `value` is more than `by` above `since` (default: what it is now)."""
    start = value() if since is None else since
    wait_until(
        lambda: value() > start + by,
        lambda: f"{message}: from {start} to {value()}, not by more than {by}",
        timeout_s,
    )


def despite_slow_starts(attempt: Callable[[], Result]) -> Result:
    """What it returns. As by the stream jobs, it is called again where a Python worker took longer
    to start than the ten seconds that Spark gives it."""
    from pyspark.errors import PySparkException

    from kafka2011.services.warehouse.streams.runner import SLOW_START, STARTS_MAX

    for starts_left in reversed(range(STARTS_MAX)):
        try:
            return attempt()
        except PySparkException as error:
            if SLOW_START not in str(error) or not starts_left:
                raise
    raise AssertionError("never started")


def run_query(start: Callable[[], Any]) -> Any:
    """The streaming query once it has ended, `despite_slow_starts`."""

    def ended() -> Any:
        query = start()
        assert query.awaitTermination(600)
        return query

    return despite_slow_starts(ended)
