"""Writes results to their topics, as events with the header and the form of all others.

A result's guid follows from its key and its time: a result that is written again after a restart
has the same guid where its time is that of a window. The state does not depend on the results: a
cluster or a registry that is away costs these results and one log line.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from kafka2011.coordination.errors import CoordinationError
from kafka2011.events.codec import Record
from kafka2011.events.errors import EventError
from kafka2011.events.registry_client import RegistryError
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.producer.sender import Sender, disconnect
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.services.site.use import Result

SERVICE = "site"
FLUSH_TIMEOUT_MS = 2_000

log = get_logger(__name__)


def event_of(result: Result, server: str) -> Record:
    """The event that says `result`."""
    name = f"{server}|{result.topic}|{result.time_ms}|{result.key}"
    return {
        "header": {
            "guid": hashlib.md5(name.encode(), usedforsecurity=False).digest(),
            "time": result.time_ms,
            "server": server,
            "service": SERVICE,
        },
        "event_time": result.time_ms,
        **result.fields,
    }


class ResultWriter:
    """Writes results; `connect` makes a producer for the first one. For use by any thread."""

    def __init__(self, connect: Callable[[], Sender], codec: TopicCodec, server: str) -> None:
        self._connect = connect
        self._codec = codec
        self._server = server
        self._lock = threading.Lock()
        self._sender: Sender | None = None
        self._is_failing = False
        self._written: Counter[str] = Counter()
        self.failed = 0

    def write(self, results: Sequence[Result]) -> None:
        """Write `results`, and wait until they are durable."""
        if not results:
            return
        with self._lock:
            try:
                self._write(results)
            except (KafkaError, CoordinationError, RegistryError, EventError, OSError) as error:
                self.failed += len(results)
                if not self._is_failing:
                    log.warning("results_not_written", detail=reason_of(error))
                self._is_failing = True
                self._disconnect()
            else:
                self._is_failing = False

    def _write(self, results: Sequence[Result]) -> None:
        by_topic = self._encoded(results)
        if by_topic:
            if self._sender is None:
                self._sender = self._connect()
            for topic, payloads in by_topic.items():
                self._sender.send(topic, payloads)
            self._sender.flush(FLUSH_TIMEOUT_MS)
        written = {topic: len(payloads) for topic, payloads in by_topic.items()}
        self._written.update(written)
        self.failed += len(results) - sum(written.values())

    def _encoded(self, results: Sequence[Result]) -> dict[str, list[bytes]]:
        """The payloads by topic, without those of results that do not fit their schema."""
        found: dict[str, list[bytes]] = {}
        for result in results:
            encode = self._codec.encoder(result.topic)
            try:
                payload = encode(event_of(result, self._server))
            except EventError as error:  # a number that is too large
                log.warning("result_left_out", key=result.key, reason=str(error))
                continue
            found.setdefault(result.topic, []).append(payload)
        return found

    def written(self) -> Mapping[str, int]:
        """Durable results by topic."""
        with self._lock:
            return dict(self._written)

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        sender, self._sender = self._sender, None
        disconnect(sender)
