"""The threads of replay-log."""

import threading
from collections.abc import Iterator
from typing import Any

from kafka2011.cli.replay_log import _Replay, _Tally
from kafka2011.producer import Producer


def test_a_thread_that_ends_by_a_bug_is_a_failure_of_the_command() -> None:
    def broken() -> Iterator[Any]:
        raise ZeroDivisionError("a bug")
        yield

    tally = _Tally(-1, 1000, threading.Event())
    replay = _Replay(broken(), Producer(broker_list="0:127.0.0.1:1"), "t", 1, 0, tally)  # type: ignore[arg-type]
    replay.worker.join()
    assert tally.stop.is_set()
    assert tally.failures == ["ZeroDivisionError('a bug')"]


def test_the_last_message_that_was_asked_for_ends_the_threads_that_wait() -> None:
    tally = _Tally(2, 1000, threading.Event())
    assert tally.take()
    assert not tally.stop.is_set()
    assert tally.take()
    assert tally.stop.is_set()
    assert not tally.take()
