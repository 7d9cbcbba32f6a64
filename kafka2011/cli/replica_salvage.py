"""`kafka2011 replicas salvage`: sends again what a replica cut off its logs.

Nothing in a cut was confirmed, except after an unclean election. Its producers may have sent the
same again themselves, so it is sent on demand only. Payloads stay as they are; which partition they
go to does not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka2011.broker.log import dump
from kafka2011.cli.output import complain, fail, print_table
from kafka2011.cli.producer_perf import BROKERINFO_HELP, brokerinfo
from kafka2011.producer import Producer
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import InvalidMessage, KafkaError
from kafka2011.runtime import logs
from kafka2011.runtime.os_errors import reason_of

BATCH_BYTES = 500_000


def salvage(
    cut: Annotated[Path, typer.Argument(metavar="CUT", help="one cut-NNNNNN of a quarantine.dir")],
    *,
    brokers: Annotated[
        str, typer.Option("--brokerinfo", help=f"where to send it: {BROKERINFO_HELP}")
    ] = "",
    partition: Annotated[
        str, typer.Option("--partition", metavar="TOPIC-N", help="only this one (default: all)")
    ] = "",
) -> None:
    """Show how many messages a cut holds; with --brokerinfo, send them again, to their topics.

    For example: kafka2011 replicas salvage /data/a-quarantine/cut-000001
    --brokerinfo zk.connect=localhost:2181

    Their producers may have sent them again: look with dump-log first. Status 1 when something
    could not be read, or is not known to be on the brokers' disks.
    """
    logs.configure("replicas", level="WARNING")
    settings: dict[str, Any] = dict(brokerinfo(brokers)) if brokers else {}
    places = sorted(
        place
        for place in (cut.iterdir() if cut.is_dir() else ())
        if place.is_dir() and partition in ("", place.name) and _topic(place)
    )
    if not places:
        fail(f"{cut} has no partitions: it must be a directory cut-NNNNNN of a quarantine.dir", 2)
    rows, bad, lost_bytes = [], 0, 0
    try:
        producer = Producer(**settings) if brokers else None
        for place in places:
            count = 0
            for payloads, unreadable, unread_bytes in _batches(place):
                bad += unreadable
                lost_bytes += unread_bytes
                count += len(payloads)
                if producer is not None and payloads:
                    producer.send(_topic(place), payloads)
            rows.append((place.name, count))
        if producer is not None:
            with producer:
                producer.flush()
    except (KafkaError, OSError) as error:
        fail(f"stopped: {reason_of(error)}; what was sent before may have arrived")
    title = "messages sent" if brokers else "messages"
    print_table(("partition", title), rows, [title])
    if bad:
        complain(f"{bad} entries could not be read: kafka2011 dump-log shows where")
    if lost_bytes:
        complain(
            f"{lost_bytes} bytes from a damaged length on could not be read: "
            "kafka2011 dump-log shows where"
        )
    raise SystemExit(1 if bad or lost_bytes else 0)


def _topic(place: Path) -> str:
    """The topic of a partition's directory; "" for another name."""
    topic, _, number = place.name.rpartition("-")
    return topic if number.isdecimal() else ""


def _batches(place: Path) -> Iterator[tuple[list[bytes], int, int]]:
    """The payloads of a partition's pieces in order, in batches; with each, how many entries and,
    after a damaged length, how many bytes could not be read: the next entry is not found then."""
    batch: list[bytes] = []
    size = bad = 0
    for piece in dump.segment_paths(place):
        base = end = dump.start_offset(piece)
        with piece.open("rb") as file:
            for entry in dump.entries(piece):
                file.seek(entry.offset - base)
                raw = file.read(entry.next_offset - entry.offset)
                try:
                    batch += message_set.payloads(raw)
                except InvalidMessage:
                    bad += 1
                size += len(raw)
                end = entry.next_offset
                if size >= BATCH_BYTES:
                    yield batch, bad, 0
                    batch, size, bad = [], 0, 0
        yield batch, bad, base + piece.stat().st_size - end
        batch, size, bad = [], 0, 0
