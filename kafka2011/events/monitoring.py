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
from kafka2011.events.header import Header
from kafka2011.events.topics import AUDIT, HEARTBEAT
from kafka2011.events.windows import WindowCount

REPEATED = "+"  # in a heartbeat's instance, before the time at which messages were sent again
HEARTBEAT_BEFORE = "heartbeat-before-last-sequence"  # still in older logs


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
    """A monitoring event. Raises EventError for anything else: park the message."""
    record = decode_as(AUDIT, payload)
    return MonitoringEvent(
        header=_header(record),
        instance=record["instance"],
        sequence=record["sequence"],
        window_ms=record["window_ms"],
        counts=tuple(WindowCount(**count) for count in record["counts"]),
    )


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
        """When the sender last sent messages again, ms since the epoch; 0: it did not."""
        said = self.instance.partition(REPEATED)[2]
        return int(said) if said.isdecimal() else 0


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
    """A message of topic `audit`. Raises EventError for anything else: park the message."""
    name = schema_name_of(payload)
    if name not in (HEARTBEAT, HEARTBEAT_BEFORE):
        return decode_monitoring(payload)
    _, record = decode(payload)
    return Heartbeat(
        _header(record),
        record["instance"],
        record["interval_ms"],
        record["is_last"],
        record.get("last_sequence", -1),
    )


def _header(record: Record) -> Header:
    header = record["header"]
    return Header(header["guid"], header["time"], header["server"], header["service"])
