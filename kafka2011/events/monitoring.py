"""Monitoring events, a producer's counts of what it sent to its cluster, and heartbeats.

A monitoring event carries the counts since the previous one (deltas) and is identified by (server,
instance, sequence), so that a reader can drop duplicates after a crash or a resend. Encoding is a
function of its arguments alone, so a repeat has the same bytes.

A heartbeat shows that its sender is running, which distinguishes an idle server from a dead one. It
carries no counts and may be repeated or lost.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kafka2011.events.codec import Record, decode, decode_as, encoder, schema_name_of
from kafka2011.events.errors import EventError
from kafka2011.events.header import Header
from kafka2011.events.topics import AUDIT, HEARTBEAT
from kafka2011.events.windows import WindowCount
from kafka2011.runtime.clock import TIME_MS_MAX

REPEATED = "+"  # in a heartbeat's instance, before the time at which messages were sent again
HEARTBEAT_BEFORE = "heartbeat-before-last-sequence"  # still in older logs

NAME_LENGTH_MAX = 255
INTERVAL_MAX_MS = 86_400_000  # of heartbeats
BEATS_MISSED = 3  # intervals without a heartbeat after which a server is silent
WINDOW_MAX_MS = 366 * 86_400_000
SEQUENCE_MAX = 2**53
# Of one monitoring event; more is garbage. All sums stay within what the audit's store holds.
COUNT_MAX = 2**40
BYTES_MAX = 2**62


@dataclass(frozen=True, slots=True)
class MonitoringEvent:
    """Counts of messages whose header.server is `header.server`."""

    header: Header
    instance: str
    sequence: int
    window_ms: int
    counts: tuple[WindowCount, ...]

    @property
    def identity(self) -> tuple[str, str, int]:
        return self.header.server, self.instance, self.sequence


def encode_monitoring(
    *,
    server: str,
    service: str,
    instance: str,
    sequence: int,
    time_ms: int,
    window_ms: int,
    counts: Sequence[WindowCount],
) -> bytes:
    """The payload for topic `audit`. Raises EventError when a value does not fit the schema."""
    identity = "\0".join((server, instance, str(sequence)))
    guid = hashlib.md5(identity.encode(), usedforsecurity=False).digest()
    return encoder(AUDIT)(
        {
            "header": {"guid": guid, "time": time_ms, "server": server, "service": service},
            "instance": instance,
            "sequence": sequence,
            "window_ms": window_ms,
            "counts": [asdict(count) for count in counts],
        }
    )


def decode_monitoring(payload: bytes) -> MonitoringEvent:
    """A monitoring event. Raises EventError for anything else, and for numbers and names that no
    producer writes: park the message."""
    record = decode_as(AUDIT, payload)
    event = MonitoringEvent(
        header=_header(record),
        instance=record["instance"],
        sequence=record["sequence"],
        window_ms=record["window_ms"],
        counts=tuple(WindowCount(**count) for count in record["counts"]),
    )
    if not 0 <= event.sequence < SEQUENCE_MAX or len(event.instance) > NAME_LENGTH_MAX:
        raise EventError("sequence or instance of a monitoring event out of range")
    if not 0 < event.window_ms <= WINDOW_MAX_MS:
        raise EventError(f"windows of {event.window_ms} ms")
    if sum(count.count for count in event.counts) > COUNT_MAX:
        raise EventError(f"more than {COUNT_MAX} messages")
    for count in event.counts:
        if not 0 <= count.count <= COUNT_MAX or not 0 <= count.bytes <= BYTES_MAX:
            raise EventError(f"a count of {count.count} in {count.bytes} bytes")
        if count.window_start < 0 or len(count.topic) > NAME_LENGTH_MAX:
            raise EventError("a window before 1970, or a topic that cannot be")
    return event


# --- heartbeats --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat. `interval_ms` until the next one; `is_last`: the sender shuts down cleanly.

    `instance` changes when the sender may have sent messages again: after a crash, or because it
    did not know whether they were stored.

    `last_sequence`, if `is_last`, is that of the sender's last monitoring event, so that its loss
    shows; -1: there is none.
    """

    header: Header
    instance: str
    interval_ms: int
    is_last: bool
    last_sequence: int = -1

    @property
    def counting_instance(self) -> str:
        """The instance of the sender's monitoring events, which it keeps when it sends again."""
        return self.instance.partition(REPEATED)[0]

    @property
    def repeated_ms(self) -> int:
        """When the sender last sent messages again, ms since the epoch; 0: it did not. Not after
        the heartbeat, which would excuse what is still to come."""
        said = self.instance.partition(REPEATED)[2]
        return min(int(said), self.header.time_ms) if said.isdecimal() else 0


def encode_heartbeat(
    *,
    server: str,
    service: str,
    instance: str,
    time_ms: int,
    interval_ms: int,
    is_last: bool,
    last_sequence: int = -1,
) -> bytes:
    """The payload for topic `audit`. Raises EventError when a value does not fit the schema."""
    identity = "\0".join((server, instance, "heartbeat", str(time_ms)))
    guid = hashlib.md5(identity.encode(), usedforsecurity=False).digest()
    return encoder(HEARTBEAT)(
        {
            "header": {"guid": guid, "time": time_ms, "server": server, "service": service},
            "instance": instance,
            "interval_ms": interval_ms,
            "is_last": is_last,
            "last_sequence": last_sequence,
        }
    )


def decode_report(payload: bytes) -> MonitoringEvent | Heartbeat:
    """A message of topic `audit`. Raises EventError for anything else, and for numbers and names
    that no producer writes: park the message."""
    name = schema_name_of(payload)
    if name not in (HEARTBEAT, HEARTBEAT_BEFORE):
        return decode_monitoring(payload)
    _, record = decode(payload)
    beat = Heartbeat(
        _header(record),
        record["instance"],
        record["interval_ms"],
        record["is_last"],
        record.get("last_sequence", -1),
    )
    if not 0 <= beat.header.time_ms <= TIME_MS_MAX or not 0 < beat.interval_ms <= INTERVAL_MAX_MS:
        raise EventError("time or interval of a heartbeat out of range")
    if beat.last_sequence >= SEQUENCE_MAX or len(beat.instance) > NAME_LENGTH_MAX:
        raise EventError("last sequence or instance of a heartbeat out of range")
    return beat


def _header(record: Record) -> Header:
    header = record["header"]
    return Header(header["guid"], header["time"], header["server"], header["service"])
