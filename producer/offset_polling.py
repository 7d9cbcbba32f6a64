"""A connection to a broker of the original: polls for what is durable (`flush.method=offsets`).

The original answers an Offsets request at once, so it offers no barrier. Its answer is the
partition's high watermark: when that has passed the bytes sent, they are durable. So the high
watermark is fetched before the first send to a partition (the base) and, at a flush, polled until
it has reached the base plus the bytes sent.

What a broken connection has sent may have arrived, and its bytes would make up for those sent after
it. So after a loss the high watermark must also have moved since the last send, or have stood still
for longer than the original waits between two flushes.

This works only for partitions that the request named. Sends for which the broker chose the
partition (-1) are always reported as not known to be durable.
"""

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka2011.producer.connection import (
    IDLE_CHECK_NS,
    Borrower,
    BrokerConnection,
    Loan,
)
from kafka2011.producer.errors import BrokerUnavailable, BrokerUnreachable, Unconfirmed
from kafka2011.producer.offsets_answer import newest
from kafka2011.protocol.errors import RemoteProtocolError
from kafka2011.protocol.requests import (
    ANY_PARTITION,
    LATEST,
    MultiProduceRequest,
    OffsetsRequest,
    ProduceRequest,
    decode_request,
    encode_request,
)
from kafka2011.runtime.os_errors import reason_of

POLL_FIRST_S = 0.005
POLL_LONGEST_S = 0.2
SETTLED_NS = 5_000_000_000  # above the original's interval between flushes by time, 3 s

Partition = tuple[str, int]


@dataclass(slots=True)
class _Sent:
    """Sends to one partition since its high watermark was last known."""

    base_offset: int  # the high watermark before the first send
    sends: int = 0
    set_bytes: int = 0
    first_answer: int | None = None  # the high watermark right after the last send
    # Sends of an earlier connection may become visible, too: `first_answer` is compared always.
    is_doubtful: bool = False
    first_answer_ns: int = 0


def is_visible(base_offset: int, own_bytes: int, first_answer: int, answer: int) -> bool:
    """Whether `own_bytes` sent since the high watermark `base_offset` are below `answer`.

    `first_answer` is the high watermark right after the sends, on their connection. Beyond the base
    plus `own_bytes`, it shows that another producer writes there too, and it may have passed only
    the bytes of that producer. But a flush covers everything appended before it: a high watermark
    that has moved since `first_answer` has passed these bytes.
    """
    expected = base_offset + own_bytes
    return answer == expected or (answer > expected and answer > first_answer)


class PollingConnection(BrokerConnection):
    """A BrokerConnection that reads the partitions of its sends from the frames."""

    _partitions: dict[Partition, _Sent]
    _unknowable: dict[str, list[int]]  # topic -> sends, bytes whose partition the broker chose

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._partitions = {}
        # Where the high watermark comes to when all that a broken connection has sent is flushed.
        self._ends_of_lost: dict[Partition, int] = {}

    def connect(self) -> socket.socket:
        for partition, sent in self._partitions.items():
            if sent.sends:
                end = sent.base_offset + sent.set_bytes
                self._ends_of_lost[partition] = max(self._ends_of_lost.get(partition, 0), end)
        self._partitions = {}
        self._unknowable = {}
        return super().connect()

    def send(
        self,
        frame: bytes,
        topic: str,
        set_bytes: int,
        more: Sequence[tuple[str, int]] = (),
        tail: bytes = b"",
    ) -> None:
        now_ns = time.monotonic_ns()
        if self._socket is None:
            self.connect()
        elif now_ns - self._last_send_ns > IDLE_CHECK_NS and self._is_closed_by_peer(self._socket):
            self._break("the broker closed the connection")
            self.connect()
        self._last_send_ns = now_ns
        parts = _parts_of(frame + tail)
        self._find_bases({(part_topic, partition) for part_topic, partition, _ in parts})
        self._last_send_ns = time.monotonic_ns()
        super().send(frame, topic, set_bytes, more, tail)
        for part_topic, partition, size in parts:
            if partition == ANY_PARTITION:
                unknowable = self._unknowable.setdefault(part_topic, [0, 0])
                unknowable[0] += 1
                unknowable[1] += size
                continue
            sent = self._partitions.get((part_topic, partition))
            if sent is None:
                self._break("the broker closed the connection during the send")
                raise BrokerUnavailable(f"{self.name}: {self.lost_reason}")
            sent.sends += 1
            sent.set_bytes += size
            sent.first_answer = None

    def _find_bases(self, wanted: set[Partition]) -> None:
        """Fetch the high watermark of each partition not sent to on this connection before."""
        deadline_ns = time.monotonic_ns() + self._socket_timeout_ms * 1_000_000
        try:
            for topic, partition in sorted(wanted):
                if partition != ANY_PARTITION and (topic, partition) not in self._partitions:
                    high_watermark = self._high_watermark(topic, partition, deadline_ns)
                    end = self._ends_of_lost.get((topic, partition), 0)
                    self._partitions[topic, partition] = _Sent(
                        high_watermark, is_doubtful=high_watermark < end
                    )
        except (OSError, RemoteProtocolError) as error:
            reason = reason_of(error)
            self._break(reason, error)
            raise BrokerUnreachable(
                f"{self.name}: no high watermark of the partition: {reason}"
            ) from error

    def _high_watermark(self, topic: str, partition: int, deadline_ns: int) -> int:
        """The partition's high watermark. Raises OSError or RemoteProtocolError."""
        sock = self._socket
        assert sock is not None
        sock.sendall(encode_request(OffsetsRequest(topic, partition, LATEST, 1)))
        return newest(self._answer(sock, deadline_ns))

    def lend(self, borrower: Borrower) -> Loan | None:  # noqa: ARG002
        """Lend nothing: each frame is read."""
        return None

    # --- the barrier -----------------------------------------------------------------------------

    def request_barrier(self, deadline_ns: int | None = None) -> None:
        """Does nothing: `await_barrier` polls."""

    def await_barrier(self, deadline_ns: int) -> bool:
        if self._socket is None or not self._pending:
            return not self.lost
        pause_s = POLL_FIRST_S
        try:
            while not self._all_visible(deadline_ns):
                if time.monotonic_ns() + pause_s * 1e9 >= deadline_ns:
                    raise TimeoutError("the broker did not show what was sent before the deadline")
                self._sleep(pause_s)
                pause_s = min(2 * pause_s, POLL_LONGEST_S)
        except (OSError, RemoteProtocolError) as error:
            self._break(reason_of(error), error)
            return False
        self._pending.clear()
        self._give_up_unknowable()
        return not self.lost

    def _all_visible(self, deadline_ns: int) -> bool:
        done = True
        for (topic, partition), sent in self._partitions.items():
            if not sent.sends:
                continue
            answer = self._high_watermark(topic, partition, deadline_ns)
            if sent.first_answer is None:
                sent.first_answer, sent.first_answer_ns = answer, time.monotonic_ns()
            is_settled = time.monotonic_ns() - sent.first_answer_ns >= SETTLED_NS
            if sent.is_doubtful and answer == sent.first_answer and not is_settled:
                done = False
            elif is_visible(sent.base_offset, sent.set_bytes, sent.first_answer, answer):
                self._partitions[topic, partition] = _Sent(answer)
                self._ends_of_lost.pop((topic, partition), None)
            else:
                done = False
        return done

    def _give_up_unknowable(self) -> None:
        if self._unknowable:
            self.lost += [
                Unconfirmed(self.name, topic, sends, set_bytes, self.connect_count)
                for topic, (sends, set_bytes) in self._unknowable.items()
            ]
            self.lost_reason = "the broker chose the partitions: durability cannot be known"
            self._unknowable = {}


def _parts_of(frames: bytes) -> list[tuple[str, int, int]]:
    """(topic, partition, set bytes) of all parts of some whole produce frames."""
    found = []
    view = memoryview(frames)
    while view:
        end = 4 + int.from_bytes(view[:4], "big")
        request = decode_request(view[4:end])
        assert isinstance(request, ProduceRequest | MultiProduceRequest)
        parts = [request] if isinstance(request, ProduceRequest) else request.parts
        found += [(part.topic, part.partition, len(part.message_set)) for part in parts]
        view = view[end:]
    return found


def connection_kind(flush_method: str) -> type[BrokerConnection]:
    """The class for a value of `flush.method`."""
    return PollingConnection if flush_method == "offsets" else BrokerConnection
