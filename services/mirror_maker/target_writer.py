"""Sends to one target broker what its copies hold, and makes it durable; a thread per broker.

Batch after batch: sets of the copies chosen by `choose_batch` go out over one connection, then a
barrier; only its answer moves a confirmed offset. When the connection breaks, everything since the
last barrier is fetched and sent again. A set at which the target hangs up is halved, down to one
entry, which `refusals` judges. The connection is made anew after each failure, to the address at
which the broker is registered then.
"""

import threading
import time
from collections.abc import Callable

from kafka2011.consumer.broker_loop import Backoff
from kafka2011.consumer.chunk import Chunk
from kafka2011.coordination.errors import CoordinationError
from kafka2011.producer import BrokerUnavailable, BrokerUnreachable
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.offset_polling import connection_kind
from kafka2011.protocol.requests import ProduceRequest, encode_request
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.shared_settings import Address
from kafka2011.runtime.workers import Worker
from kafka2011.services.mirror_maker.age_sampling import AgeSampler
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy, choose_batch
from kafka2011.services.mirror_maker.refusals import Refusals

CONNECT_TIMEOUT_MS = 1000
IDLE_WAIT_S = 1.0
STOP_TIMEOUT_S = 1.0
SEND_BUFFER_BYTES = 1 << 20

log = get_logger(__name__)


class TargetWriter:
    """The writer to a target broker. The mirror fills and empties `copies`, under `wake`'s lock."""

    def __init__(
        self,
        broker_id: int,
        config: MirrorConfig,
        wake: threading.Condition,
        *,
        address_of: Callable[[int], Address],
        may_send: Callable[[], bool],
        refusals: Refusals,
    ) -> None:
        self.broker_id = broker_id
        self.copies: list[PartitionCopy] = []
        self.is_connected = False
        self.barriers = 0
        self.barrier_s = 0.0  # total time spent waiting for barriers
        self._config = config
        self._wake = wake
        self._address_of = address_of
        self._may_send = may_send
        self._refusals = refusals
        self._backoff = Backoff(config.retry_min_ms / 1000, config.retry_max_ms / 1000)
        self._attempt = 0
        self._retry_at_s = 0.0
        self._after_alone = False
        self._stopped = False
        self._sampler = AgeSampler(config.forms)
        self._connection: BrokerConnection | None = None
        # Not restarted: what was sent would not be known any more, and might be confirmed wrongly.
        self._worker = Worker(self._run, f"target-{broker_id}", restarts=False)
        self._worker.start()

    @property
    def is_alive(self) -> bool:
        return self._worker.is_alive()

    def stop(self) -> None:
        """Send nothing more and close the connection. `wake`'s lock must not be held.

        It does not wait for a target that does not answer, whose answer would change nothing now.
        """
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        self._worker.join(STOP_TIMEOUT_S)

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                break
            try:
                self._copy(batch)
            except Exception:
                # A bug of ours must not stop a broker's partitions for good: what is not
                # confirmed is sent again.
                log.exception("target_writer_failed", target=self.broker_id)
                self._close()
                self._failed(batch, "an internal error", is_blamed=True)
        self._close()

    def _next_batch(self) -> list[PartitionCopy] | None:
        """Wait for something to send; None when stopped."""
        with self._wake:
            while not self._stopped:
                now_s = time.monotonic()
                if now_s >= self._retry_at_s and self._may_send():
                    batch = choose_batch(self.copies, now_s, after_alone=self._after_alone)
                    if batch:
                        self._after_alone = batch[0].is_suspect
                        return batch
                self._wake.wait(self._pause_s(now_s))
            return None

    def _pause_s(self, now_s: float) -> float:
        """The time until the next pause of a copy ends; every other change notifies `wake`."""
        ends = [self._retry_at_s, *(copy.next_event_s() for copy in self.copies)]
        return min([IDLE_WAIT_S, *(end - now_s for end in ends if end > now_s)])

    def _copy(self, batch: list[PartitionCopy]) -> None:
        started_s = time.monotonic()
        sent: dict[int, PartitionCopy] = {}
        try:
            connection = self._connected()
            self._send(connection, batch, started_s, sent)
            failpoint("mirror_after_send_before_barrier")
            asked_s = time.monotonic()
            is_durable = connection.barrier(self._config.barrier_timeout_ms)
            self.barriers += 1
            self.barrier_s += time.monotonic() - asked_s
            reason = connection.lost_reason
        except BrokerUnreachable as error:
            # If the connection stood, the target did not say a partition's end: being blamed, each
            # is sent alone, so that only that one fails, and not its neighbours with it for ever.
            self._failed(list(sent.values()), str(error), is_blamed=bool(sent))
            if not sent:
                self._away(str(error))
            return
        except BrokerUnavailable as error:
            is_durable, reason = False, str(error)
        if not is_durable:
            self._failed(list(sent.values()), reason, is_blamed=True)
            return
        failpoint("mirror_after_barrier_before_commit")
        self._attempt = 0
        now_s = time.monotonic()
        with self._wake:
            for copy in sent.values():
                copy.confirm(copy.sent_offset, now_s)
                self._sampler.confirmed(copy)
            self._wake.notify_all()
        self._map(connection, list(sent.values()), now_s)

    def _map(self, connection: BrokerConnection, copies: list[PartitionCopy], now_s: float) -> None:
        """Note for the copies that are due where their confirmed offsets are at the target."""
        interval_s = self._config.map_interval_ms / 1000
        for copy in copies:
            offsets, target = copy.offsets, copy.target
            if offsets is None or target is None or now_s - copy.mapped_at_s < interval_s:
                continue
            try:
                end = connection.end_of(
                    copy.name.topic, target.partition, self._config.barrier_timeout_ms
                )
            except BrokerUnavailable as error:  # the copy itself is durable
                log.warning("not_mapped", partition=str(copy.name), reason=str(error))
                self._close()
                return
            with self._wake:
                copy.mapped_at_s = now_s
                if not copy.is_removed:
                    offsets.reach(copy.confirmed_offset, end)

    def _send(
        self,
        connection: BrokerConnection,
        batch: list[PartitionCopy],
        started_s: float,
        sent: dict[int, PartitionCopy],
    ) -> None:
        """Send sets in turn until none is left, or it is time for a barrier."""
        for copy in batch:
            offsets, target = copy.offsets, copy.target
            if offsets is not None and target is not None and not offsets.has_begun:
                sent[id(copy)] = copy  # it is to blame if the target does not say the end
                end = connection.end_of(
                    copy.name.topic, target.partition, self._config.barrier_timeout_ms
                )
                with self._wake:
                    offsets.begin(copy.confirmed_offset, end)
        batch_bytes = 0
        going = list(batch)
        while going:
            for copy in list(going):
                with self._wake:
                    chunk = copy.take()
                    target = copy.target
                if chunk is None or target is None:
                    going.remove(copy)
                    continue
                sent[id(copy)] = copy
                self._sampler.sent(copy, chunk)
                request = ProduceRequest(chunk.topic, target.partition, chunk.data)
                connection.send(encode_request(request), chunk.topic, len(chunk.data))
                copy.copied_sets += 1
                batch_bytes += len(chunk.data)
                if copy.is_suspect:
                    return
            elapsed_ms = (time.monotonic() - started_s) * 1000
            if batch_bytes >= self._config.batch_bytes_max or elapsed_ms >= self._config.batch_ms:
                return

    # --- the connection --------------------------------------------------------------------------

    def _connected(self) -> BrokerConnection:
        """The connection, made if there is none. Raises BrokerUnreachable."""
        if self._connection is None:
            try:
                published = self._address_of(self.broker_id)
            except (BrokerUnavailable, CoordinationError) as error:
                raise BrokerUnreachable(str(error)) from error
            connection = connection_kind(self._config.flush_method)(
                self._config.dialled(published),
                connect_timeout_ms=CONNECT_TIMEOUT_MS,
                socket_timeout_ms=self._config.barrier_timeout_ms,
                send_buffer_bytes=SEND_BUFFER_BYTES,
                reconnect_sends=2**62,
                reconnect_ms=None,
                keeps_order=True,  # also where the target hangs up in the middle of a batch
            )
            connection.connect()
            self._connection = connection
            self.is_connected = True
            log.info("target_connected", target=self.broker_id, address=connection.name)
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
        self.is_connected = False

    def _away(self, reason: str) -> None:
        """Pause all copies, none of which is to blame: the target cannot be reached at all."""
        if self._attempt == 0:
            log.warning("target_not_answering", target=self.broker_id, reason=reason)
        self._attempt += 1
        self._retry_at_s = time.monotonic() + self._backoff.pause_s(self._attempt)
        with self._wake:
            for copy in self.copies:
                if not copy.is_quiet:  # also one whose turn it was not
                    copy.trouble = reason
            if self._config.scatter:  # any other broker will do
                for copy in self.copies:
                    copy.target = None
                self.copies.clear()
                self._wake.notify_all()

    def _failed(self, copies: list[PartitionCopy], reason: str, *, is_blamed: bool) -> None:
        """Begin again from what is confirmed, over a new connection."""
        connection = self._connection
        is_refusal = is_blamed and connection is not None and not connection.has_timed_out
        alone: list[tuple[PartitionCopy, Chunk]] = []
        self._close()
        now_s = time.monotonic()
        with self._wake:
            for copy in copies:
                if copy.is_removed:
                    continue
                if is_blamed:
                    log.warning(
                        "copy_failed",
                        partition=str(copy.name),
                        target=copy.target.text if copy.target else "",
                        confirmed=copy.confirmed_offset,
                        sent=copy.sent_offset,
                        reason=reason,
                    )
                chunk = copy.rewind(now_s, reason, is_blamed=is_blamed, is_refusal=is_refusal)
                if chunk is not None:
                    alone.append((copy, chunk))
            self._wake.notify_all()
        for copy, chunk in alone:
            self._refusals.refused_alone(copy, chunk)
