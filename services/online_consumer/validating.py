"""Validates what the group has read against the monitoring events, every few seconds.

Each member does it for the whole group, from the counts in ZooKeeper, so that there is a verdict as
long as there is a member.
"""

import threading
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from kafka2011.consumer.counting.verdicts import NUMBERED, Validated
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.coordination.errors import CoordinationError
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

INTERVAL_S = 10.0  # a look reads every count of the group in ZooKeeper
WINDOWS_SHOWN = 20  # of a topic, those that are not complete

log = get_logger(__name__)


class Validating:
    """The newest verdicts, from a thread of its own. Without `audit.enable` there are none."""

    def __init__(self, connector: ConsumerConnector) -> None:
        self._connector = connector
        self._group = connector.config.group_id
        self.newest: Validated | None = None
        self._stop = threading.Event()
        self._worker: Worker | None = None
        if connector.config.audit_enable:
            self._worker = Worker(self._run, "validate", restarts=True)

    def start(self) -> None:
        if self._worker is not None:
            self._worker.start()

    def close(self) -> None:
        self._stop.set()
        if self._worker is not None:
            self._worker.join(10)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            try:
                self.newest = self._connector.validate()
            except CoordinationError as error:
                log.warning("not_validated", reason=str(error))

    def status(self) -> dict[str, Any] | None:
        """The verdicts for /status; None where nothing is counted, and before the first look."""
        found = self.newest
        if found is None:
            return None
        return {
            "state": found.state,
            "complete_to_ms": found.complete_to_ms,
            "read_to_ms": found.read_to_ms,
            "unread": found.unread,
            "topics": {
                topic: {
                    "state": each.state,
                    "counted": each.counted,
                    "expected": each.expected,
                    "counted_from_ms": each.counted_from_ms,
                    "complete_to_ms": each.complete_to_ms,
                    "again": each.again,
                    **each.numbers,
                    "windows": [
                        {"start_ms": one.start_ms, "state": one.state, "number": one.number}
                        | ({"reason": one.reason} if one.reason else {})
                        for one in each.open_windows[-WINDOWS_SHOWN:]
                    ],
                }
                for topic, each in found.topics.items()
            },
        }

    def metrics(self) -> Iterator[Metric]:
        numbers = GaugeMetricFamily(
            "kafka2011_consumed_messages",
            "messages of the group by verdict, of windows since counting began",
            labels=("group", "verdict"),
        )
        complete = GaugeMetricFamily(
            "kafka2011_consumed_complete_to_seconds",
            "up to when all that was produced was read; since the epoch",
            labels=("group",),
        )
        state = GaugeMetricFamily(
            "kafka2011_consumed_state",
            "1 for the worst verdict on what the group has read",
            labels=("group", "verdict"),
        )
        since = GaugeMetricFamily(
            "kafka2011_consumed_counted_from_seconds",
            "from when on the group is judged; since the epoch, 0: from the beginning",
            labels=("group",),
        )
        found = self.newest
        if found is None:
            return iter(())
        if found.topics:
            state.add_metric((self._group, found.state), 1)
            since.add_metric((self._group,), found.counted_from_ms / 1000)
            for verdict in NUMBERED:
                numbers.add_metric((self._group, verdict), found.number(verdict))
        if found.complete_to_ms is not None:
            complete.add_metric((self._group,), found.complete_to_ms / 1000)
        return iter((numbers, state, since, complete))
