"""The thread that reads what is watched, over a session in ZooKeeper's place."""

import contextlib
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kafka2011.coordination import zookeeper_watches
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.coordination.zookeeper_watches import Watches
from tests.support.waiting import wait_until


def test_a_watch_that_was_not_read_is_read_again_however_often_its_reader_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loader that was paused as it read its first watch loaded nothing from then on: it looks
    more often than each second, and only a second without a question led to the next try."""
    monkeypatch.setattr(zookeeper_watches, "REFRESH_RETRY_S", 0.2)
    reads: list[str] = []

    def once(_request: Any, _deadline_s: float) -> list[str]:
        reads.append("read")
        if len(reads) < 3:
            raise CoordinationUnavailable("ZooKeeper did not answer in time")
        return ["b", "a"]

    def dispatch_callback(callback: Any) -> None:
        callback.func(*callback.args)

    client = SimpleNamespace(handler=SimpleNamespace(dispatch_callback=dispatch_callback))
    closed = SimpleNamespace(is_set=lambda: False)
    watches = Watches()
    watches.attach(SimpleNamespace(once=once, client=client, closed=closed))  # type: ignore[arg-type]
    found: list[list[str]] = []
    watches.add_children("/brokers/topics", found.append)

    def is_up_to_date() -> bool:
        try:
            watches.catch_up(time.monotonic() + 10)
        except CoordinationUnavailable:
            return False
        return True

    watches.start()
    with contextlib.closing(watches):
        wait_until(is_up_to_date, "the watch is read", timeout_s=10)
    assert found == [["a", "b"]]
    assert len(reads) == 3
