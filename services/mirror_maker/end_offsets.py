"""Where the source partitions end: asked for periodically, on separate connections.

The fetchers know an end only when they have reached it, but lag needs it when they have not; so
ends that no fetch has reached recently are asked for.
"""

import threading
from collections.abc import Callable, Sequence

from kafka2011.consumer.errors import ConsumerClosed
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination.errors import CoordinationError
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.clock import has_passed, now_ms
from kafka2011.runtime.shared_settings import Address
from kafka2011.runtime.workers import Worker
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy

TIMEOUT_MS = 5000
FRESH_INTERVALS = 2  # an end known this recently is not asked for
KNOWN_INTERVALS = 5  # an end that was asked for longer ago may not be the end now


class SourceEndOffsets:
    """A thread that keeps `source_end` of all copies fresh."""

    def __init__(
        self,
        config: MirrorConfig,
        address_of: Callable[[int], Address],
        copies: Callable[[], list[PartitionCopy]],
        wake: threading.Condition,
    ) -> None:
        self._config = config
        self._address_of = address_of
        self._copies = copies
        self._wake = wake
        self._stopped = threading.Event()
        self._clients: dict[int, SimpleConsumer] = {}
        self._worker = Worker(self._run, "source-ends", restarts=True)
        self._worker.start()

    def stop(self) -> None:
        self._stopped.set()
        for client in list(self._clients.values()):
            client.close()
        self._worker.join()

    def _run(self) -> None:
        interval_s = self._config.status_interval_ms / 1000
        while not self._stopped.wait(interval_s):
            at_ms = now_ms()
            fresh_ms = FRESH_INTERVALS * self._config.status_interval_ms
            old: dict[int, list[PartitionCopy]] = {}
            for copy in self._copies():
                with self._wake:
                    copy.forget_the_future(at_ms)
                if has_passed(fresh_ms, copy.source_end_ms, at_ms):
                    old.setdefault(copy.name.broker_id, []).append(copy)
            for broker_id, copies in old.items():
                if self._stopped.is_set():
                    break
                self._ask(broker_id, copies)
        for client in self._clients.values():
            client.close()

    def _ask(self, broker_id: int, copies: Sequence[PartitionCopy]) -> None:
        """Note the ends that the broker returns."""
        asked_ms = now_ms()
        try:
            client = self._client(broker_id)
            ends = client.latest_of([(copy.name.topic, copy.name.partition) for copy in copies])
        except ConsumerClosed:
            return
        except (KafkaError, CoordinationError):
            failed = self._clients.pop(broker_id, None)
            if failed is not None:
                failed.close()
            return
        with self._wake:
            for copy, end in zip(copies, ends, strict=True):
                if end is not None:
                    copy.source_end = max(end, copy.confirmed_offset)
                    copy.source_end_ms = asked_ms

    def _client(self, broker_id: int) -> SimpleConsumer:
        if broker_id not in self._clients:
            host, port = self._config.dialled(self._address_of(broker_id))
            self._clients[broker_id] = SimpleConsumer(host, port, TIMEOUT_MS)
        return self._clients[broker_id]
