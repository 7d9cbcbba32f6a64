"""Heartbeats to topic `audit` from a process that writes into a cluster.

For processes other than frontends, which send theirs with their counts. A thread with a producer of
its own sends them, so the process is never blocked; an unavailable cluster costs one log line. A
lost heartbeat is not sent again, since the next one replaces it.
"""

import threading
from collections.abc import Callable

from kafka2011.coordination.errors import CoordinationError
from kafka2011.events.monitoring import encode_heartbeat
from kafka2011.events.topics import AUDIT
from kafka2011.producer import Producer
from kafka2011.producer.sender import Sender, disconnect
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.workers import Worker

REPEATED_LOOK_S = 0.5
FLUSH_TIMEOUT_MS = 1_000  # a stop never waits longer for a cluster that hangs

log = get_logger(__name__)


class HeartbeatSender:
    """Sends a heartbeat of `server` every `interval_ms` from now on, and a last one at `close`.

    Does nothing when `server` is empty or the interval 0. `connect` makes a producer for the
    cluster that the process writes to; after a CoordinationError or KafkaError it is retried.
    `repeated` is a figure that grows when the process may have written messages twice: the
    heartbeats then name another instance, as after a restart, so that the audit expects copies.
    """

    def __init__(
        self,
        connect: Callable[[], Sender],
        *,
        server: str,
        service: str,
        interval_ms: int,
        clock: Clock = now_ms,
        repeated: Callable[[], int] = lambda: 0,
    ) -> None:
        self._connect = connect
        self._server = server
        self._service = service
        self._interval_ms = interval_ms
        self._clock = clock
        self._instance_ms = clock()
        self._repeated = repeated
        self._repeated_before = repeated()
        self._producer: Sender | None = None
        self._is_failing = False
        self._is_early = False  # whether the last heartbeat was sent before its time
        self._stop = threading.Event()
        self._says_goodbye = True
        self._worker: Worker | None = None
        if server and interval_ms:
            self._worker = Worker(self._run, "heartbeat", restarts=True)
            self._worker.start()

    def close(self, *, says_goodbye: bool = True) -> None:
        """Send the last heartbeat, if the cluster is available, and end. A process that fails
        (`says_goodbye` False) leaves it out: its server is silent, not stopped."""
        self._says_goodbye = says_goodbye
        self._stop.set()
        if self._worker is not None:
            self._worker.join()

    def _run(self) -> None:
        self._disconnect()  # the producer of a run that failed
        while True:
            self._send(is_last=False)
            if self._wait():
                break
        if self._says_goodbye:
            self._send(is_last=True)
        self._disconnect()

    def _wait(self) -> bool:
        """Wait until the next heartbeat is due; returns whether to stop instead.

        It is due at once when messages may have been repeated, which are extra until it is read;
        but not twice in a row, since they may be repeated again and again.
        """
        left_s, was_early = self._interval_ms / 1000, self._is_early
        self._is_early = False
        while left_s > 0 and not self._is_early:
            pause_s = left_s if was_early else min(REPEATED_LOOK_S, left_s)
            if self._stop.wait(pause_s):
                return True
            left_s -= pause_s
            self._is_early = left_s > 0 and self._repeated() > self._repeated_before
        return False

    def _send(self, *, is_last: bool) -> None:
        repeated = self._repeated()
        if repeated > self._repeated_before:
            self._instance_ms, self._repeated_before = self._clock(), repeated
        payload = encode_heartbeat(
            server=self._server,
            service=self._service,
            instance=str(self._instance_ms),
            time_ms=self._clock(),
            interval_ms=self._interval_ms,
            is_last=is_last,
        )
        try:
            if self._producer is None:
                self._producer = self._connect()
            self._producer.send(AUDIT, [payload])
            self._producer.flush(FLUSH_TIMEOUT_MS)
        except (KafkaError, CoordinationError, OSError) as error:
            if not self._is_failing:
                log.warning("heartbeat_not_sent", detail=reason_of(error))
            self._is_failing = True
            self._disconnect()
        else:
            self._is_failing = False

    def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        disconnect(producer)


def producer_for(zk_connect: str, address_map: dict[tuple[str, int], tuple[str, int]]) -> Sender:
    """A producer for the cluster at `zk_connect`. Raises CoordinationError."""
    return Producer(zk_connect=zk_connect, address_map=address_map)
