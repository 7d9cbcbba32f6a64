"""A `logging.Handler` that ships log records to a topic: the role of 0.7's log4j appender.

    logging.getLogger().addHandler(ShippingHandler("app-log", broker_list="0:127.0.0.1:9092"))

The application never waits for a broker: `emit` encodes the record and puts it into a bounded
queue; a thread of the handler connects and sends. While the brokers are unavailable the queue
fills; then records are dropped and counted, with one line on standard error when sending works
again. Records of the clients' own loggers are not shipped, since shipping would add to them.
"""

import json
import logging
import os
import sys
import threading
import time
import traceback
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from kafka2011.coordination.errors import CoordinationError
from kafka2011.events.header import Header
from kafka2011.events.registry_client import RegistryError
from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.errors import NotDurable
from kafka2011.producer.keywords import ProducerSettings
from kafka2011.producer.producer import Producer
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.message_set import payload_bytes
from kafka2011.protocol.names import check_topic
from kafka2011.runtime.config import ConfigError
from kafka2011.runtime.keywords import with_keywords
from kafka2011.runtime.workers import Worker

if TYPE_CHECKING:
    from kafka2011.events.envelope import Envelope

Encoder = Callable[[logging.LogRecord], bytes]

BATCH_RECORDS = 500
ENVELOPE_BYTES_MAX = 8192  # of a record's event: its header, and the logger's name
LINGER_S = 0.05  # records within this time are sent together
RETRY_FIRST_S = 0.1
RETRY_LONGEST_S = 5.0
# Loggers of the clients' own code and of the ZooKeeper client.
OWN_LOGGERS = ("kafka2011", "kazoo")


def json_record(record: logging.LogRecord) -> bytes:
    """An encoder: one JSON object with time (ms since the epoch), level, logger, message, process,
    thread, and the stack trace if there is one."""
    fields: dict[str, Any] = {
        "time": int(record.created * 1000),
        "level": record.levelname,
        "logger": record.name,
        "message": record.getMessage(),
        "process": record.process,
        "thread": record.threadName,
    }
    if record.exc_info:
        fields["exception"] = "".join(traceback.format_exception(*record.exc_info))
    return json.dumps(fields, default=str).encode()


class _Record(NamedTuple):
    """A record in the queue."""

    payload: bytes
    time_ms: int
    logger: str


class ShippingHandler(logging.Handler):
    """Ships to `topic` with the settings of a `Producer` (`broker_list=` or `zk_connect=`, ...).

    `encoder` makes a record's payload (default: the formatter's text in UTF-8). At most
    `queue_records` (count) are queued. `close` and `flush` wait at most `close_timeout_ms`. Raises
    ConfigError for invalid settings; unavailable brokers never raise.

    `dropped` counts records that found no room, were too large, or were left at `close`;
    `shipped` those that are durable; `repeated` those sent again, which may be stored twice.
    A forked child continues with an empty queue and a thread of its own.

    With `audit_enable` each record is sent as an event (`events.envelope`) with its time, the
    server `audit_server` and the logger's name, and counted.
    """

    def __init__(
        self,
        topic: str,
        *,
        level: int | str = logging.NOTSET,
        encoder: Encoder | None = None,
        queue_records: int = 10_000,
        close_timeout_ms: int = 5_000,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__(level)
        if queue_records < 1:
            raise ConfigError("queue_records must be at least 1")
        self._topic = topic
        self._encoder = encoder
        self._envelope: Envelope | None = None  # made at the first batch: its schema has an id
        own = ("level", "encoder", "queue_records", "close_timeout_ms")
        usual = ProducerConfig(connect_timeout_ms=1000, socket_timeout_ms=5000)
        self._config = with_keywords("ShippingHandler", usual, {**settings}, own)
        if not self._config.broker_list and not self._config.zk_connect:
            raise ConfigError("a ShippingHandler needs one of broker_list and zk_connect")
        check_topic(topic, "0.7")
        try:
            self._config.check_lines(topic)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self._line_bytes_max = self._config.payload_bytes_max
        if self._config.audit_enable:  # the event has a header as well
            self._line_bytes_max -= ENVELOPE_BYTES_MAX
        self._queue_records = queue_records
        self._close_timeout_s = close_timeout_ms / 1000
        self.shipped = 0
        self.dropped = 0
        self.repeated = 0
        self._reset()
        reset = weakref.WeakMethod(self._reset)
        os.register_at_fork(after_in_child=lambda: (method := reset()) and method())

    def _reset(self) -> None:
        """Start with an empty queue and no thread: the first record starts one. A forked child
        does this too, since the parent ships the records queued before."""
        self._queue: deque[_Record] = deque()
        self._changed = threading.Condition()
        self._worker: Worker | None = None
        self._producer: Producer | None = None
        self._in_flight = 0
        self._is_closed = False
        self._is_flushing = False
        self._unreported_drops = 0

    # --- the application's side ------------------------------------------------------------------

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record, or count it as dropped. An encoder's error goes to `handleError`."""
        if record.name.partition(".")[0] in OWN_LOGGERS:
            return
        if self._worker is not None and self._worker.is_current:
            return
        try:
            if self._encoder is not None:
                payload = payload_bytes(self._encoder(record))
            else:
                payload = self.format(record).encode("utf-8", "backslashreplace")
        except Exception:
            self.handleError(record)
            return
        if self._config.audit_enable:  # as its event will have it, which may be four times as long
            payload = payload.decode("utf-8", "backslashreplace").encode()
        with self._changed:
            has_room = len(self._queue) + self._in_flight < self._queue_records
            if self._is_closed or not has_room or len(payload) > self._line_bytes_max:
                self._drop(1)
                return
            self._queue.append(_Record(payload, int(record.created * 1000), record.name))
            if self._worker is None:
                self._worker = Worker(
                    self._ship, "log-ship", restarts=True, on_failure=self._give_up_batch
                )
                self._worker.start()
            if len(self._queue) == 1 or len(self._queue) == BATCH_RECORDS:
                self._changed.notify_all()

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._unreported_drops += count

    def flush(self) -> None:
        """Wait until what was logged before is durable, at most `close_timeout_ms`."""
        with self._changed:
            self._is_flushing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting(), self._close_timeout_s)
            self._is_flushing = False

    def _waiting(self) -> int:
        return len(self._queue) + self._in_flight if self._worker is not None else 0

    def close(self) -> None:
        """Ship what is queued, for at most `close_timeout_ms`; the rest is dropped, counted, and
        reported on standard error. Later records are dropped."""
        self.flush()
        with self._changed:
            if not self._is_closed:
                self._is_closed = True
                self._drop(self._waiting())
                self._queue.clear()
                self._changed.notify_all()
                self._report_drops()
        if self._worker is not None and self._config.audit_enable:
            self._worker.join(self._close_timeout_s)
        super().close()

    def _give_up_batch(self, error: BaseException) -> None:
        """Drop what the thread had when it ended by an unexpected exception; it runs again."""
        with self._changed:
            if not self._is_closed:
                self._drop(self._in_flight)
                self._in_flight = 0
                self._report_drops(f": {error!r}")
                self._changed.notify_all()

    def _report_drops(self, why: str = "") -> None:
        count, self._unreported_drops = self._unreported_drops, 0
        if count and sys.stderr is not None:
            sys.stderr.write(
                f"kafka2011: {count} log records for {self._topic} were dropped{why}\n"
            )

    # --- the thread ------------------------------------------------------------------------------

    def _ship(self) -> None:
        try:
            self._ship_batches()
        finally:
            producer, self._producer = self._producer, None
            if producer is not None:
                try:
                    # The last counts and the goodbye are reported at the close.
                    is_counting = self._config.audit_enable
                    producer.close(int(self._close_timeout_s * 1000) if is_counting else 0)
                except NotDurable:
                    pass  # counted as dropped

    def _ship_batches(self) -> None:
        pause_s = RETRY_FIRST_S
        batch: list[bytes] = []
        records: list[_Record] = []
        while True:
            if not records:
                records, batch = self._next_batch(), []
                if not records:
                    break
            try:
                batch = batch or self._payloads(records)
                if self._producer is None:
                    self._producer = Producer(self._config)
                self._producer.send(self._topic, batch)
                self._producer.flush()
            except (KafkaError, CoordinationError, RegistryError, OSError) as error:
                is_judged = isinstance(error, KafkaError | RegistryError)
                if is_judged and not getattr(error, "retriable", False):
                    self._done(len(records), shipped=False)  # permanent
                    records = []
                    continue
                # The same batch is sent again later; meanwhile the queue fills.
                self.repeated += len(batch)
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_closed, pause_s):
                        break
                pause_s = min(2 * pause_s, RETRY_LONGEST_S)
                continue
            pause_s = RETRY_FIRST_S
            self._done(len(records), shipped=True)
            records = []

    def _payloads(self, records: "list[_Record]") -> list[bytes]:
        """The payloads to send: the records', or events of them if they are counted. Raises
        RegistryError."""
        config = self._config
        if not config.audit_enable:
            return [record.payload for record in records]
        if self._envelope is None:
            from kafka2011.events.envelope import envelope

            self._envelope = envelope(config, self._topic)
        wrap, server, service = self._envelope, config.counted_server, config.audit_service
        return [
            wrap(Header(uuid.uuid4().bytes, one.time_ms, server, service), one.payload, one.logger)
            for one in records
        ]

    def _done(self, count: int, *, shipped: bool) -> None:
        with self._changed:
            if self._is_closed:
                return  # given up by `close`
            if shipped:
                self.shipped += count
            else:
                self._drop(count)
            self._in_flight = 0
            self._report_drops()
            self._changed.notify_all()

    def _next_batch(self) -> list[_Record]:
        """Wait for the next batch, full or LINGER_S old; empty once closed with nothing queued."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed)
            deadline_s = time.monotonic() + LINGER_S
            self._changed.wait_for(
                lambda: len(self._queue) >= BATCH_RECORDS or self._is_flushing or self._is_closed,
                max(0.0, deadline_s - time.monotonic()),
            )
            batch: list[_Record] = []
            # Half, so that it fits max.message.size compressed into one message.
            room = self._line_bytes_max // 2
            while self._queue and len(batch) < BATCH_RECORDS:
                room -= len(self._queue[0].payload)
                if batch and room < 0:
                    break
                batch.append(self._queue.popleft())
            self._in_flight = len(batch)
            return batch
