"""`kafka2011 console-producer`: send each line of standard input as one message.

The options are those of 0.7, and `--broker-list`. At the end of the input,
or at SIGTERM or SIGINT, everything is flushed. Standard error then says how
many were sent. Statuses: 0 all lines are on the brokers' disks; 1 some may not be, and standard
error says which; 2 for wrong options.

Unlike 0.7: it compresses only with --compress (the original always does), ends at the end
of the input, and waits when its queue is full instead of dropping lines. --key and --partition are
not in the original: they say which partition all lines go to.
"""

import contextlib
import functools
import os
import select
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, NamedTuple

import typer

from kafka2011.cli.connections import DATACENTERS, connected, event_settings_here, refuse_places
from kafka2011.cli.options import Settings, ZooKeeper, broker_partition
from kafka2011.cli.output import complain, fail, number_of
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.header import Header
from kafka2011.events.registry_client import RegistryError
from kafka2011.producer import BrokerUnavailable, BrokerUnreachable, NotDurable, Producer
from kafka2011.producer.asynchronous import broker_queue
from kafka2011.producer.config import ProducerConfig, python_object
from kafka2011.producer.requests import encode_sets
from kafka2011.protocol.errors import IllegalTopicName, KafkaError, MessageSizeTooLarge
from kafka2011.protocol.names import check_topic, hint_at_name
from kafka2011.runtime import logs
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.config import ConfigError
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.shared_settings import INT_MAX
from kafka2011.runtime.signals import stop_event

app = typer.Typer(add_completion=False)

BATCH_SIZE = 200
TIMEOUT_MS = 1000
MESSAGE_BYTES_MAX = 1_000_000
LINE_BYTES_MAX = 64 * 1024 * 1024  # kept of a line, for an encoder that makes it smaller
READ_BYTES = 65536
POLL_MS = 100
LOOK_S = 1.0  # between looks for lines that were lost
REFUSED_NAMED_MAX = 10  # each with a line of its own


@dataclass
class _Tally:
    sent: int = 0
    refused: int = 0

    def refuse(self, reason: str) -> None:
        self.refused += 1
        if self.refused <= REFUSED_NAMED_MAX:
            complain(f"line {self.sent + self.refused}: {reason}")
        elif self.refused == REFUSED_NAMED_MAX + 1:
            complain("further lines that are refused are only counted")


class TooLong(NamedTuple):
    """A line above LINE_BYTES_MAX, of which nothing was kept."""

    size: int  # bytes


@app.command()
def run(  # noqa: PLR0917 (the original's options)
    topic: Annotated[str, typer.Option("--topic", help="topic to write")],
    zookeeper: ZooKeeper = "",
    broker_list: Annotated[
        str, typer.Option("--broker-list", help="id:host:port,... instead of ZooKeeper")
    ] = "",
    sync: Annotated[
        bool, typer.Option("--sync", help="send each line at once, in its own request")
    ] = False,
    compress: Annotated[bool, typer.Option("--compress", help="compress with gzip")] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=INT_MAX, help="messages in one batch")
    ] = BATCH_SIZE,
    timeout: Annotated[
        int,
        typer.Option(
            "--timeout",
            min=0,
            max=INT_MAX,
            help="longest time until an incomplete batch is sent, ms",
        ),
    ] = TIMEOUT_MS,
    message_encoder: Annotated[
        str, typer.Option("--message-encoder", help="module:function from line to payload")
    ] = "",
    line_reader: Annotated[
        str,
        typer.Option("--line-reader", help="module:function from (input, properties) to payloads"),
    ] = "",
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="passed to the line reader; repeatable"
        ),
    ] = None,
    max_message_size: Annotated[
        int,
        typer.Option(
            "--max-message-size",
            min=1,
            max=INT_MAX,
            help="longest line, bytes; longer ones are refused",
        ),
    ] = MESSAGE_BYTES_MAX,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", help="key of all lines, which chooses their partition (with ZooKeeper)"
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition",
            metavar="BROKER-PARTITION",
            help="send all lines to this partition, each in its own request",
        ),
    ] = None,
    set_: Settings = None,
) -> None:
    """Send lines from standard input to a topic.

    With --set audit.enable=true and --set audit.dir=DIR each line is counted: as an event with its
    time or, in a topic of JSON (event.forms), as it stands, if its field of the server has the
    value of audit.server. Send all of a topic's lines so: the audit calls others *extra*.
    For example: kafka2011 console-producer --zookeeper localhost:2181 --topic clicks < access.log
    """
    if zookeeper and broker_list:
        fail("give one of --zookeeper and --broker-list", 2)
    refuse_places(set_ or [], {"zk.connect": "--zookeeper", "broker.list": "--broker-list"})
    try:
        check_topic(topic, "0.7")
    except IllegalTopicName as error:
        fail(str(error), 2)
    if key is not None and (broker_list or partition is not None):
        fail("--key chooses among all partitions: give it with --zookeeper, without --partition", 2)
    place = None if partition is None else broker_partition(partition)
    settings: dict[str, Any] = {"serializer": _encoder(message_encoder)}
    options = {
        "batch.size": (batch_size, BATCH_SIZE),
        "queue.time": (timeout, TIMEOUT_MS),
        "max.message.size": (max_message_size, MESSAGE_BYTES_MAX),
    }
    # Each stands behind --set where it says something else than it does by itself.
    usual = [f"{name}={value}" for name, (_, value) in options.items()]
    usual += ["producer.type=async", f"queue.size={max(10_000, batch_size)}"]
    asked = [f"{name}={value}" for name, (value, other) in options.items() if value != other]
    asked += ["producer.type=sync"] * bool(sync or place) + ["compression.codec=1"] * compress
    # The options say where the brokers are, whatever a container's environment says.
    given = list(set_ or [])
    if not broker_list and zookeeper in ("", *DATACENTERS):
        given += event_settings_here(given)
    config = load_or_exit(
        ProducerConfig,
        None,
        [*usual, "queue.enqueueTimeout.ms=-1", *given, *asked],
        log_level="WARNING",
        zk_connect="",
    )
    # The end names what was lost.
    logs.configure("console-producer", level="WARNING", but=broker_queue.__name__)
    if config.audit_enable:
        settings["serializer"] = _counted(config, topic, settings["serializer"])
    reader = _reader(line_reader, property_ or [])
    stop = stop_event()
    with contextlib.ExitStack() as stack:
        try:
            settings["broker_list"] = broker_list or ()
            if not broker_list:
                settings["registry"] = stack.enter_context(connected(zookeeper))
            producer = Producer(config, **settings)
        except ConfigError:
            raise
        except (CoordinationError, KafkaError) as error:
            fail(f"cannot reach the brokers: {error}")
        if place is None:
            send: Send = functools.partial(producer.send, topic, key=key)
        else:
            send = functools.partial(_send_to, producer, topic, place)
        _send_all(producer, topic, send, reader, stop, place=place)


Send = Callable[[bytes], None]


def _send_to(producer: Producer, topic: str, place: BrokerPartition, line: bytes) -> None:
    """Send one line to one partition. Raises as `Producer.send`."""
    config = producer.config
    payload = line if config.serializer is None else config.serializer(line)
    [(encoded, _)] = encode_sets([payload], config.compression_codec, config.request_limits)
    producer.send_set(topic, encoded, broker_id=place.broker_id, partition=place.partition)


def _send_all(
    producer: Producer,
    topic: str,
    send: Send,
    reader: "Reader | None",
    stop: threading.Event,
    *,
    place: BrokerPartition | None,
) -> None:
    tally = _Tally()
    payloads: Iterable[bytes | TooLong] = (
        reader(sys.stdin.buffer) if reader else lines(sys.stdin.fileno(), stop)
    )
    has_complained, looks_s = False, 0.0
    try:
        with producer:
            for payload in payloads:
                _send(send, payload, tally)
                if not has_complained and time.monotonic() >= looks_s:
                    # Not for every line: to add up the counters costs more than a send.
                    has_complained = _complains_of_losses(producer)
                    looks_s = time.monotonic() + LOOK_S
                if stop.is_set():
                    break
    except NotDurable as error:
        failed = producer.stats.failed
        of_which = f", of which {failed:,} could not be sent" if failed else ""
        fail(f"after {number_of(tally.sent, 'line')}{of_which}: {error}{_hint(topic, place)}")
    except (KafkaError, CoordinationError) as error:
        said = [str(error), *getattr(error, "__notes__", ())]
        closed = isinstance(error, BrokerUnavailable) and not isinstance(error, BrokerUnreachable)
        hint = _hint(topic, place) if closed else ""
        fail(f"line {tally.sent + tally.refused + 1} was not sent: {'; '.join(said)}{hint}")
    if tally.refused:
        fail(f"{number_of(tally.refused, 'line')} refused, {tally.sent:,} sent to {topic}")
    complain(f"{number_of(tally.sent, 'message')} sent to {topic}")


def _complains_of_losses(producer: Producer) -> bool:
    """Whether lines could not be sent; says so at once, since the input may have no end."""
    if failed := producer.stats.failed:
        complain(
            f"{number_of(failed, 'line')} could not be sent so far, and what was sent before them "
            "may be lost: the end says how much, and why"
        )
    return failed > 0


def _hint(topic: str, place: BrokerPartition | None) -> str:
    """Why a broker may have closed the connection: 0.7 has no other answer."""
    if of_name := hint_at_name(topic):
        return of_name
    if place is not None and place.partition:
        return f"; the broker may have no partition {place.partition} of {topic} (num.partitions)"
    return ""


def _encoder(name: str) -> Callable[[bytes], bytes] | None:
    """The user's encoder; None for the original's classes, which do not change a line."""
    if not name or name.startswith("kafka."):
        return None
    try:
        made: Callable[[bytes], object] = python_object(name)
    except ValueError as error:
        fail(f"--message-encoder {name!r}: {error}", 2)

    def encode(line: bytes) -> bytes:
        try:
            payload = made(line)
        except Exception as error:  # the user's own code
            raise KafkaError(
                f"--message-encoder {name}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(payload, bytes):
            raise KafkaError(f"--message-encoder {name} returned {type(payload).__name__}")
        return payload

    return encode


def _counted(
    config: ProducerConfig, topic: str, encode: Callable[[bytes], bytes] | None
) -> Callable[[bytes], bytes]:
    """Makes an event of a line's payload. Exits when no id of the lines' schema can be had."""
    from kafka2011.events.envelope import envelope

    try:
        config.check_lines(topic)
        wrap = envelope(config, topic)
    except ValueError as error:
        fail(str(error), 2)
    except RegistryError as error:
        fail(str(error))
    server, service = config.counted_server, config.audit_service

    def event_of(line: bytes) -> bytes:
        payload = line if encode is None else encode(line)
        return wrap(Header(uuid.uuid4().bytes, now_ms(), server, service), payload, "")

    return event_of


Reader = Callable[[BinaryIO], Iterable[bytes]]


def _reader(name: str, properties: Iterable[str]) -> Reader | None:
    """The user's line reader, or None for plain lines. Exits with status 2 for anything else."""
    known: dict[str, str] = {}
    for text in properties:
        key, equals, value = text.partition("=")
        if not equals or not key:
            fail(f"--property {text!r} must be NAME=VALUE", 2)
        known[key] = value
    if not name or name == "kafka.producer.ConsoleProducer$LineMessageReader":
        if known:
            fail("--property is for a --line-reader; plain lines have none", 2)
        return None
    try:
        made = python_object(name)
    except ValueError as error:
        fail(f"--line-reader {name!r}: {error}", 2)
    return lambda source: _read_by(made, name, source, known)


def _read_by(
    made: Callable[[BinaryIO, Mapping[str, str]], Iterable[bytes]],
    name: str,
    source: BinaryIO,
    properties: Mapping[str, str],
) -> Iterator[bytes]:
    try:
        yield from made(source, properties)
    except (KafkaError, CoordinationError):
        raise
    except Exception as error:  # the user's own code
        raise KafkaError(f"--line-reader {name}: {type(error).__name__}: {error}") from error


def _send(send: Send, line: bytes | TooLong, tally: _Tally) -> None:
    if isinstance(line, TooLong):
        tally.refuse(f"of {line.size:,} bytes: lines above {LINE_BYTES_MAX:,} bytes are not read")
        return
    try:
        send(line)
    except MessageSizeTooLarge as error:
        tally.refuse(str(error))
        return
    except BrokerUnavailable as error:
        if tally.sent:  # the close adds which of these may be lost with this one
            error.add_note(f"{number_of(tally.sent, 'line')} sent before it")
        raise
    tally.sent += 1


def lines(descriptor: int, stop: threading.Event) -> Iterator[bytes | TooLong]:
    """The lines that arrive at `descriptor`, without their ends, until its end or `stop`.

    A last line without an end counts, unless `stop` cut it.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN | select.POLLHUP)
    pieces: list[bytes] = []
    size = 0  # of the line that is not whole yet

    def line() -> bytes | TooLong:
        whole = b"".join(pieces).removesuffix(b"\r") if size <= LINE_BYTES_MAX else TooLong(size)
        pieces.clear()
        return whole

    while not stop.is_set():
        if not poller.poll(POLL_MS):
            continue
        chunk = os.read(descriptor, READ_BYTES)
        if not chunk:
            if size:
                yield line()
            return
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            pieces.append(piece)
            size += len(piece)
            yield line()
            size = 0
        size += len(rest)
        if size > LINE_BYTES_MAX:
            pieces.clear()
        elif rest:
            pieces.append(rest)
