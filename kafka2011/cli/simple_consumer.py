"""`kafka2011 simple-consumer`: read one partition of one broker (0.7's SimpleConsumerShell).

Needs no group and no ZooKeeper: the options name broker and partition. `Unlike 0.7:` it pauses when
a fetch returns nothing (the original sends thousands of requests a second), the fetch size grows
for a larger message, --no-wait ends it at the log's end, and a partition that nothing was ever sent
to is an error (the original waits).
"""

import json
import sys
import threading
from collections.abc import Iterator
from typing import Annotated

import typer

from kafka2011.cli.connections import brokers_here, no_log, server_address
from kafka2011.cli.message_formats import as_record
from kafka2011.cli.options import Server
from kafka2011.cli.output import complain, fail, number_of, payload_bytes, reader_has_gone
from kafka2011.consumer.chunk import Chunk
from kafka2011.consumer.errors import ConsumerClosed
from kafka2011.consumer.fetched_set import larger_size
from kafka2011.consumer.simple import LATEST, SimpleConsumer
from kafka2011.protocol.errors import (
    BrokerUnavailable,
    IllegalTopicName,
    InvalidMessage,
    KafkaError,
    MessageLargerThanFetchSize,
    OffsetOutOfRange,
)
from kafka2011.protocol.names import check_topic
from kafka2011.protocol.requests import FetchRequest
from kafka2011.runtime import logs
from kafka2011.runtime.signals import stop_event
from kafka2011.runtime.workers import Worker

app = typer.Typer(add_completion=False)

FETCH_SIZE_MAX = 1 << 28
PAUSE_S = 0.1


@app.command()
def run(  # noqa: PLR0917 (the original's options)
    server: Server,
    topic: Annotated[str, typer.Option("--topic", help="topic")],
    partition: Annotated[
        int, typer.Option("--partition", min=0, help="partition number on that broker")
    ] = 0,
    offset: Annotated[
        int,
        typer.Option(
            "--offset", min=-2, help="offset to start at, bytes; -2: start of the log, -1: its end"
        ),
    ] = 0,
    fetchsize: Annotated[
        int,
        typer.Option(
            "--fetch-size", "--fetchsize", min=1, max=FETCH_SIZE_MAX, help="bytes of one fetch"
        ),
    ] = 1_000_000,
    print_offsets: Annotated[
        bool, typer.Option("--print-offsets", help="print `next offset = N` after each message")
    ] = False,
    print_messages: Annotated[
        bool, typer.Option("--print-messages", help="print each payload after `consumed: `")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="stop at the end of the log")] = False,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=1, help="stop after this many messages")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON object for each message")
    ] = False,
    socket_timeout_ms: Annotated[
        int, typer.Option("--socket-timeout-ms", min=1, help="longest wait for the broker, ms")
    ] = 30_000,
) -> None:
    """Read one partition from an offset, until Ctrl-C; then print the count on standard error.

    For example: kafka2011 simple-consumer --server kafka://localhost:9092 --topic clicks
    --offset -2 --print-messages --no-wait

    Status 1 when the broker does not answer, nothing was ever sent to the partition, or the offset
    cannot be read.
    """
    logs.configure("simple-consumer", level="WARNING")
    address = server_address(server)
    stop = stop_event()
    count, is_given = 0, offset >= 0
    out = sys.stdout.buffer
    try:
        check_topic(topic, "0.7")
        with SimpleConsumer(*address, socket_timeout_ms) as client:
            Worker(lambda: _close_on(stop, client), "stop", restarts=False).start()
            if missing := no_log(client, topic, partition):
                fail(missing)
            if not is_given:
                ask = client.latest if offset == LATEST else client.earliest
                offset = ask(topic, partition)
            chunks = _chunks(client, topic, partition, offset, fetchsize, stop, ends=no_wait)
            pieces = (piece for chunk in chunks for piece in chunk.pieces())
            for message in (one for piece in pieces for one in piece):
                count += 1
                if as_json:
                    record = as_record(message)
                    del record["broker"]  # the broker's id is unknown here
                    out.write(json.dumps(record).encode() + b"\n")
                if print_messages and not as_json:
                    out.write(b"consumed: " + payload_bytes(message.payload, out) + b"\n")
                if print_offsets and not as_json:
                    out.write(b"next offset = %d\n" % message.next_offset)
                offset = message.next_offset
                if count == max_messages or stop.is_set():
                    break
    except IllegalTopicName as error:
        fail(str(error), 2)
    except ConsumerClosed:
        pass  # by the signal
    except KafkaError as error:
        out.flush()
        gone = isinstance(error, OffsetOutOfRange)
        reason = "the offset is not in the log (see get-offsets)" if gone else str(error)
        if (
            is_given
            and not count
            and isinstance(error, MessageLargerThanFetchSize | InvalidMessage)
        ):
            reason += "; is it the start of an entry? --print-offsets names those"
        if isinstance(error, BrokerUnavailable):
            reason += brokers_here(address)
        fail(f"{topic}-{partition} at {offset}, after {number_of(count, 'message')}: {reason}")
    out.flush()
    complain(f"{number_of(count, 'message')}, next offset {offset}")


def _close_on(stop: threading.Event, client: SimpleConsumer) -> None:
    """Close the client at `stop`: Ctrl-C must work while the broker does not answer, too."""
    stop.wait()
    client.close()


def _chunks(  # noqa: PLR0917 (four parameters name a place in a log)
    client: SimpleConsumer,
    topic: str,
    partition: int,
    offset: int,
    size: int,
    stop: threading.Event,
    *,
    ends: bool,
) -> Iterator[Chunk]:
    asked = size
    while not stop.is_set():
        [found] = client.multifetch([FetchRequest(topic, partition, offset, asked)])
        try:
            valid = found.valid_bytes()
        except MessageLargerThanFetchSize as error:
            asked = larger_size(asked, error, FETCH_SIZE_MAX)
            if not asked:
                raise
            continue
        if not valid:
            sys.stdout.buffer.flush()
            if ends or reader_has_gone(sys.stdout.fileno()):
                return
            stop.wait(PAUSE_S)
            continue
        asked = size
        yield Chunk(topic, -1, partition, offset, found.data[:valid], offset + valid)
        offset += valid
