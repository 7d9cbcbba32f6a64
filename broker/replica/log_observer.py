"""Reports what happens to a replica's logs to its machine: written, flushed, failed, made.

All writes of one turn of the loop are one event per log, and so are all flushes.
"""

from collections.abc import Callable
from typing import Any

from kafka2011.broker.log.log import Log
from kafka2011.broker.replication import events
from kafka2011.broker.replication.machine import Replica


class LogObserver:
    """The observer of all logs. `reported` is called after the events of a turn."""

    def __init__(
        self,
        loop: Any,
        machine: Replica,
        feed: Callable[[events.Event], None],
        reported: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._machine = machine
        self._feed = feed
        self._reported = reported
        self._written: set[Log] = set()
        self._flushed: set[Log] = set()
        self._is_noted = False

    def log_written(self, log: Log) -> None:
        self._written.add(log)
        self._note()

    def log_flushed(self, log: Log) -> None:
        self._flushed.add(log)
        self._note()

    def log_failed(self, log: Log) -> None:
        self._loop.call_soon(self._feed, events.LogFailed(log.name))

    def log_made(self, log: Log) -> None:
        self._loop.call_soon(self._feed, events.LogMade(log.name))

    def _note(self) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._loop.call_soon(self.report)

    def report(self) -> None:
        """Feed the machine what was written and flushed since the last time, with the present ends.

        A follower's writes are left out: the machine knows them already.
        """
        self._is_noted = False
        written, self._written = self._written, set()
        flushed, self._flushed = self._flushed, set()
        copies = self._machine.context.copies
        for log in written | flushed:
            copy = copies.get(log.name)
            if copy is not None and log.written_end > copy.written:
                self._feed(events.Appended(log.name, log.written_end))
        for log in flushed:
            copy = copies.get(log.name)
            if copy is not None and log.flushed_end > copy.flushed:
                self._feed(events.Flushed(log.name, log.flushed_end))
        self._reported()
