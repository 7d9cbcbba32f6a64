"""`kafka2011 console-consumer`: print the messages of topics on standard output.

The options are those of 0.7. Statuses: 0 after --max-messages, a timeout,
SIGTERM or SIGINT; 1 when a partition cannot be read or a formatter fails (unless
--skip-message-on-error), or ZooKeeper or the output fails; 2 for wrong options.

`Unlike 0.7:` a message is committed only after it has left this process. What could not be written,
or the formatter failed on, comes again to the next consumer of the group.
"""

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, BinaryIO

import typer

from kafka2011.cli.connections import ANSWER_S, DATACENTERS, refuse_places, zookeeper_address
from kafka2011.cli.message_formats import Format, FormatFailed, message_format
from kafka2011.cli.options import Settings, ZooKeeper
from kafka2011.cli.output import complain, fail, number_of, printable, reader_has_gone
from kafka2011.consumer.chunk import ConsumedMessage, TopicPartition
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import (
    ConsumerFailed,
    ConsumerStateError,
    ConsumerTimeout,
    PartitionStuck,
)
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.groups.delivery import Grant
from kafka2011.consumer.groups.topic_filters import TopicFilter, blacklist, whitelist
from kafka2011.consumer.stream import MessageStream
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event
from kafka2011.runtime.workers import Worker

app = typer.Typer(add_completion=False)

FLUSH_INTERVAL_S = 0.1
FLUSH_BYTES = 1 << 16
OUTPUT_WAIT_S = 5.0  # for an output that takes nothing, when the command is to end


@app.command()
def run(  # noqa: PLR0917 (the original's options)
    zookeeper: ZooKeeper = "",
    topic: Annotated[str | None, typer.Option("--topic", help="topic to read")] = None,
    whitelist_: Annotated[
        str | None,
        typer.Option("--whitelist", help="regular expression: topics whose whole name matches"),
    ] = None,
    blacklist_: Annotated[
        str | None,
        typer.Option("--blacklist", help="regular expression: all topics but those that match"),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="group to join (default: a temporary one, deleted on exit)"),
    ] = None,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="delete the group's offsets and start at the smallest"
        ),
    ] = False,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=1, help="stop after this many messages")
    ] = None,
    consumer_timeout_ms: Annotated[
        int | None,
        typer.Option(
            "--consumer-timeout-ms",
            help="stop when no message arrived for this long, ms; -1: never (the default)",
        ),
    ] = None,
    fetch_size: Annotated[
        int | None, typer.Option("--fetch-size", help="bytes of one fetch")
    ] = None,
    socket_buffer_size: Annotated[
        int | None, typer.Option("--socket-buffer-size", help="SO_RCVBUF, bytes")
    ] = None,
    autocommit_interval_ms: Annotated[
        int | None,
        typer.Option(
            "--autocommit-interval-ms", "--autocommit.interval.ms", help="time between commits, ms"
        ),
    ] = None,
    formatter: Annotated[
        str,
        typer.Option(
            "--formatter",
            help="newline, checksum (topic-checksum:crc), event (decoded, as JSON), or "
            "module:function from a message to the bytes to print",
        ),
    ] = "newline",
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="print.topic, print.partition, print.offset (true), line.separator; "
            "of --formatter event: event.forms, schema.registry.url (as the settings)",
        ),
    ] = None,
    skip_message_on_error: Annotated[
        bool,
        typer.Option(
            "--skip-message-on-error", help="skip messages that cannot be read or formatted"
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print one JSON object for each message")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="print payloads unchanged, also to a terminal")
    ] = False,
    set_: Settings = None,
) -> None:
    """Print messages as they arrive, starting with new ones unless --from-beginning.

    For example: kafka2011 console-consumer --zookeeper localhost:2181 --topic clicks
    --from-beginning

    On a terminal, control characters are shown as escapes; to a pipe or a file, payloads are
    written unchanged.
    """
    chosen = _chosen_filter(topic, whitelist_, blacklist_)
    shown: Callable[[bytes], bytes] = bytes
    if sys.stdout.isatty() and not raw:
        shown = _for_terminal
    refuse_places(set_ or [], {"zk.connect": "--zookeeper"})
    is_here = zookeeper in ("", *DATACENTERS)
    formatted = message_format(formatter, property_ or [], as_json, shown, is_here=is_here)
    temporary = f"console-consumer-{random.randrange(100_000)}"
    config = load_or_exit(
        ConsumerConfig,
        None,
        ["autooffset.reset=largest", f"groupid={temporary}", *(set_ or [])],
        log_level="WARNING",
        zk_connect=zookeeper_address(zookeeper),
        groupid=group,
        autooffset_reset="smallest" if from_beginning else None,
        consumer_timeout_ms=consumer_timeout_ms,
        fetch_size=fetch_size,
        socket_buffersize=socket_buffer_size,
        autocommit_interval_ms=autocommit_interval_ms,
    )
    stop = stop_event()
    try:
        status = _consume(
            config,
            chosen,
            _Output(sys.stdout.buffer, formatted, stop),
            stop,
            topic=topic,
            forget_first=from_beginning,
            forget_after=config.group_id == temporary,
            count_max=max_messages,
            skips=skip_message_on_error,
        )
    except CoordinationError as error:
        complain(str(error))
        status = 1
    except BrokenPipeError:
        # The reader of the output has closed it; Python must not report that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except OSError as error:  # a full disk behind it, for instance
        complain(f"cannot write the output: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    raise SystemExit(status)


def _chosen_filter(
    topic: str | None, whitelist_text: str | None, blacklist_text: str | None
) -> TopicFilter:
    """The filter that the options choose; --topic is a whitelist, as in the original."""
    given = [text for text in (topic, whitelist_text, blacklist_text) if text is not None]
    if len(given) != 1:
        fail("give exactly one of --topic, --whitelist, --blacklist", 2)
    try:
        return blacklist(given[0]) if blacklist_text is not None else whitelist(given[0])
    except KafkaError as error:
        fail(str(error), 2)


def _for_terminal(payload: bytes) -> bytes:
    return printable(payload).encode()


class _Output:
    """Standard output. `flush` hands the operating system what `write` was given; it is called when
    it `is_due`, so that neither a single message nor a flood of them waits long.

    A thread, from `start` to `close`, sets `is_due`, and `stop` when the reader has closed the
    output.
    """

    def __init__(self, out: BinaryIO, formatted: Format, stop: threading.Event) -> None:
        self._out = out
        self._formatted = formatted
        self._stop = stop
        self._pieces: list[bytes] = []
        self._size = 0
        self.count = 0
        self.is_due = False
        self._ended = threading.Event()
        self._watcher = Worker(self._watch, "output", restarts=False)
        self.start = self._watcher.start

    def write(self, message: ConsumedMessage) -> None:
        """Add a message for `flush` to write. Raises FormatFailed."""
        text = self._formatted(message)
        self._pieces.append(text)
        self.count += 1
        self._size += len(text)
        if self._size >= FLUSH_BYTES:
            self.is_due = True

    def flush(self) -> None:
        """Write what was added. Raises BrokenPipeError when the reader has closed the output,
        OSError when it cannot be written."""
        self.is_due = False
        rest = memoryview(b"".join(self._pieces))
        self._pieces.clear()
        self._size = 0
        while rest:  # without Python's buffer (-u), a write may take a part of it
            rest = rest[self._out.write(rest) :]
        self._out.flush()

    def close(self) -> None:
        self._ended.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._ended.wait(FLUSH_INTERVAL_S):
            self.is_due = True
            if reader_has_gone(self._out.fileno()):
                self._stop.set()
                return


def _consume(
    config: ConsumerConfig,
    chosen: TopicFilter,
    output: _Output,
    stop: threading.Event,
    *,
    topic: str | None,
    forget_first: bool,
    forget_after: bool,
    count_max: int | None,
    skips: bool,
) -> int:
    registry = ZooKeeperRegistry(
        config.zk_connect, config.zk_session_timeout_ms, makes_chroot=False
    )
    try:
        registry.start(config.zk_connection_timeout_ms)
        if forget_first:
            if registry.children(paths.consumer_ids_path(config.group_id)):
                fail(f"group {config.group_id!r} has members: stop them first", 2)
            registry.delete_recursive(paths.group_path(config.group_id))
        there = cluster.topics(registry)
        if not chosen.select(there):
            named = f"topic {topic!r}{suggestion(topic, there)}" if topic else "such topic"
            complain(f"waiting for a first message: there is no {named}")
        with ConsumerConnector(config, registry) as connector:
            [stream] = connector.create_message_streams_by_filter(chosen)
            printing = _Printing(connector, stream, output, stop, count_max, skips=skips)
            ending = Worker(
                lambda: end_on(stop, connector, registry, printing.is_idle), "stop", restarts=False
            )
            ending.start()
            output.start()
            try:
                return printing.run()
            finally:
                output.close()
                if stop.is_set():
                    ending.join()  # it abandons the registry where ZooKeeper is away
    finally:
        if forget_after and registry.session_id() is not None:
            registry.delete_recursive(paths.group_path(config.group_id))
        registry.close()


def end_on(
    stop: threading.Event,
    connector: ConsumerConnector,
    registry: ZooKeeperRegistry,
    is_idle: threading.Event | None = None,
) -> None:
    """End the connector when `stop` is set; without ZooKeeper if that does not answer, as each step
    would wait for it. Waits a little for `is_idle`, when all that was delivered is counted."""
    stop.wait()
    if not registry.answers_within(ANSWER_S):
        complain(
            "ZooKeeper does not answer: ended without it; what was read since the last commit is "
            "read again, and a temporary group stays there"
        )
        registry.abandon()
    if is_idle is not None:
        is_idle.wait(OUTPUT_WAIT_S)
    connector.shutdown()


class _Printing:
    """Prints a stream's messages until it ends, `stop` is set, or the options say so.

    A message counts as delivered and as processed when the output has it, not before: what is in
    this process alone is lost with it, and must not be committed.
    """

    def __init__(
        self,
        connector: ConsumerConnector,
        stream: MessageStream,
        output: _Output,
        stop: threading.Event,
        count_max: int | None,
        *,
        skips: bool,
    ) -> None:
        self._connector = connector
        self._stream = stream
        self._output = output
        self._stop = stop
        self._count_max = count_max
        self._skips = skips
        self.is_idle = threading.Event()  # all that is printed counts; once stopped, no more is

    def run(self) -> int:
        """Print, and return the exit status. Raises OSError when the output cannot be written."""
        try:
            while True:
                status = self._print_batches()
                if status is not None:
                    return status
        finally:
            self.is_idle.set()

    def _print_batches(self) -> int | None:
        """Print batches. Returns the exit status; None to continue behind an unreadable message."""
        try:
            while True:
                self.is_idle.set()
                batch = self._stream.take()
                if batch is None:
                    return 0
                status = self._print(*batch)
                if status is not None:
                    return status
        except ConsumerTimeout as error:
            complain(f"{error}; {number_of(self._output.count, 'message')} printed")
            return 0
        except ConsumerFailed as error:
            complain(str(error))
            return 1
        except PartitionStuck as error:
            complain(str(error))
            return None if self._skips and self._skip(error) else 1

    def _skip(self, error: PartitionStuck) -> bool:
        try:
            name = TopicPartition(error.topic, error.broker_id, error.partition)
            self._connector.skip_entry(name, error.offset)
        except (KafkaError, ConsumerStateError) as failure:
            complain(f"cannot skip it: {failure}")
            return False
        return True

    def _print(self, messages: Iterator[ConsumedMessage], grant: Grant) -> int | None:
        """Print one batch. The exit status when that is the end, else None."""
        self.is_idle.clear()
        if self._stop.is_set():
            return 0
        status: int | None = None
        last: ConsumedMessage | None = None
        output = self._output
        for message in messages:
            if not grant.open and not self._await(grant, last):
                break
            try:
                output.write(message)
            except FormatFailed as error:
                complain(f"{message.topic} before {message.next_offset}: {error}")
                if not self._skips:
                    status = 1
                    break
            last = message
            if output.count == self._count_max:
                status = 0
                break
            if output.is_due:
                self._flush(grant, last)
                if self._stop.is_set():
                    break
        self._flush(grant, last)
        return status

    def _await(self, grant: Grant, last: ConsumedMessage | None) -> bool:
        """Flush what was printed; returns whether more may be printed under the grant."""
        self._flush(grant, last)
        self.is_idle.set()
        is_open = self._stream.await_grant(grant)
        self.is_idle.clear()
        return is_open and not self._stop.is_set()

    def _flush(self, grant: Grant, last: ConsumedMessage | None) -> None:
        self._output.flush()
        if last is not None:
            grant.last = grant.done = last
