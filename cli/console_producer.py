"""`kafka2011 console-producer`: send each line of standard input as one message.

The options are the original's (reference section 11), and `--broker-list`. At the end of the input,
or at SIGTERM or SIGINT, everything is flushed. Statuses: 0 all lines are on the brokers' disks;
1 some are not known to be, and standard error says which; 2 for wrong options.

Unlike 0.7: it compresses only with --compress (the original always does), ends by itself at the end
of the input, and waits when its queue is full instead of dropping lines.
"""

import os
import select
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from coordination.errors import CoordinationError
from producer import NotDurable, Producer
from producer.errors import BrokerUnavailable
from protocol.errors import KafkaError, MessageSizeTooLarge
from runtime.config import ConfigError
from runtime.signals import stop_event

app = typer.Typer(add_completion=False)

READ_BYTES = 65536
POLL_MS = 100


@dataclass
class _Tally:
    sent: int = 0
    refused: int = 0


@app.command()
def run(  # noqa: PLR0917 (the original's options)
    topic: Annotated[str, typer.Option("--topic", help="topic to send to")],
    zookeeper: Annotated[
        str, typer.Option("--zookeeper", help="host:port,host:port/chroot of the brokers")
    ] = "",
    broker_list: Annotated[
        str, typer.Option("--broker-list", help="id:host:port,... instead of ZooKeeper")
    ] = "",
    sync: Annotated[bool, typer.Option("--sync", help="one request a line, at once")] = False,
    compress: Annotated[bool, typer.Option("--compress", help="compress with gzip")] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="messages that are sent together")
    ] = 200,
    timeout: Annotated[
        int, typer.Option("--timeout", min=0, help="longest wait for a batch to fill, ms")
    ] = 1000,
    message_encoder: Annotated[
        str, typer.Option("--message-encoder", help="module:function from line to payload")
    ] = "",
    max_message_size: Annotated[
        int, typer.Option("--max-message-size", min=1, help="longer lines are refused")
    ] = 1_000_000,
) -> None:
    """Send lines from standard input to a topic."""
    stop = stop_event()
    tally = _Tally()
    try:
        producer = Producer(
            zk_connect=zookeeper,
            broker_list=broker_list if broker_list else (),
            producer_type="sync" if sync else "async",
            compression_codec="1" if compress else "0",
            batch_size=batch_size,
            queue_size=max(10_000, batch_size),
            queue_time_ms=timeout,
            enqueue_timeout_ms=-1,
            serializer="" if message_encoder.startswith("kafka.") else message_encoder,
            max_message_bytes=max_message_size,
        )
    except ConfigError:
        raise
    except (CoordinationError, KafkaError) as error:
        _fail(f"cannot reach the brokers: {error}")
    try:
        with producer:
            for line in lines(sys.stdin.fileno(), stop):
                _send(producer, topic, line, tally)
    except NotDurable as error:
        _fail(f"after {tally.sent} lines: {error}")
    except (KafkaError, CoordinationError) as error:
        _fail(f"line {tally.sent + tally.refused + 1} was not sent: {error}")
    if tally.refused:
        _fail(f"{tally.refused} lines were refused, {tally.sent} were sent")


def _send(producer: Producer, topic: str, line: bytes, tally: _Tally) -> None:
    try:
        producer.send(topic, line)
    except MessageSizeTooLarge as error:
        tally.refused += 1
        print(f"kafka2011: line {tally.sent + tally.refused}: {error}", file=sys.stderr)
        return
    except BrokerUnavailable as error:
        # The close tells of earlier lines that may be lost with it.
        error.add_note(f"{tally.sent} lines were sent before")
        raise
    tally.sent += 1


def _fail(reason: str) -> None:
    print(f"kafka2011: {reason}", file=sys.stderr)
    raise SystemExit(1)


def lines(descriptor: int, stop: threading.Event) -> Iterator[bytes]:
    """The lines that arrive at `descriptor`, without their ends, until its end or `stop`.

    A last line without an end counts, unless `stop` cut it.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN | select.POLLHUP)
    pieces: list[bytes] = []
    while not stop.is_set():
        if not poller.poll(POLL_MS):
            continue
        chunk = os.read(descriptor, READ_BYTES)
        if not chunk:
            if pieces:
                yield b"".join(pieces).removesuffix(b"\r")
            return
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            yield (b"".join(pieces) + piece).removesuffix(b"\r")
            pieces = []
        if rest:
            pieces.append(rest)
