"""`kafka2011 consumer-perf`: how fast this machine consumes (0.7's ConsumerPerformance).

Options, columns and defaults are the original's; with --server instead of
--zookeeper it is SimpleConsumerPerformance (12.3): single fetches of one partition. `Unlike 0.7:`
the time of the summary ends with the last message (the original takes the 5 s of its timeout off),
and --socket-buffer-size is applied. Threads share one interpreter.
"""

import functools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer

from kafka2011.cli.connections import connected, server_address, zookeeper_address
from kafka2011.cli.console_consumer import end_on
from kafka2011.cli.options import Settings, ZooKeeper
from kafka2011.cli.output import complain, fail
from kafka2011.cli.perf import (
    DATE_FORMAT,
    MB,
    MESSAGES_MAX,
    DateFormat,
    DatePattern,
    HidesHeader,
    PerfThread,
    PrintsJson,
    ReportingInterval,
    Rows,
    ShowsDetailedStats,
    exit_with_failures,
    per_second,
    run_threads,
)
from kafka2011.cli.unread import unread
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import ConsumerTimeout
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.stream import MessageStream
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import Registry
from kafka2011.protocol.errors import IllegalTopicName
from kafka2011.protocol.names import check_topic
from kafka2011.runtime import logs
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event
from kafka2011.runtime.workers import Worker

app = typer.Typer(add_completion=False)

SHARED = ("fetch.size", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec")


@app.command()
def run(  # noqa: PLR0917 (the original's options)
    topic: Annotated[str, typer.Option("--topic", help="topic")],
    zookeeper: ZooKeeper = "",
    server: Annotated[
        str,
        typer.Option("--server", help="kafka://host:port: one partition of this broker"),
    ] = "",
    partition: Annotated[int, typer.Option("--partition", min=0, help="with --server")] = 0,
    group: Annotated[
        str, typer.Option("--group", help="group, deleted first (default: a temporary one)")
    ] = "",
    messages: Annotated[
        int, typer.Option("--messages", min=1, help="messages after which each thread stops")
    ] = MESSAGES_MAX,
    fetch_size: Annotated[
        int, typer.Option("--fetch-size", min=1, help="bytes of one fetch")
    ] = 1_048_576,
    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="only messages that arrive from now on")
    ] = False,
    socket_buffer_size: Annotated[
        int,
        typer.Option(
            "--socket-buffer-size", min=0, help="SO_RCVBUF, bytes; 0: sized by the kernel"
        ),
    ] = 2_097_152,
    threads: Annotated[
        int, typer.Option("--threads", min=1, help="number of streams, each with a thread")
    ] = 10,
    consumer_timeout_ms: Annotated[
        int,
        typer.Option(
            "--consumer-timeout-ms", min=1, help="stop when no message arrived for this long, ms"
        ),
    ] = 5000,
    reporting_interval: ReportingInterval = 5000,
    date_format: DatePattern = DATE_FORMAT,
    show_detailed_stats: ShowsDetailedStats = False,
    hide_header: HidesHeader = False,
    as_json: PrintsJson = False,
    set_: Settings = None,
) -> None:
    """Consume a topic as fast as possible until no more messages arrive, and print the rate.

    For example: kafka2011 consumer-perf --zookeeper localhost:2181 --topic perf --threads 1

    Status 1 when nothing came, or something could not be read.
    """
    logs.configure("consumer-perf", level="WARNING")
    if zookeeper and server:
        fail("give one of --zookeeper and --server", 2)
    try:
        check_topic(topic, "0.7")
    except IllegalTopicName as error:
        fail(str(error), 2)
    printer = _Printer(
        Rows(hides_header=hide_header, as_json=as_json),
        DateFormat(date_format),
        fetch_size,
        reporting_interval if show_detailed_stats else None,
    )
    stop = stop_event()
    if server:
        fetched = _fetched(server_address(server), topic, partition, fetch_size, latest=from_latest)
        printer.header(has_thread=False)
        _run_all([_Receiver(0, fetched, messages, stop, printer)], printer)
        return
    zookeeper = zookeeper_address(zookeeper)
    config = load_or_exit(
        ConsumerConfig,
        None,
        set_ or [],
        log_level="WARNING",
        zk_connect=zookeeper,
        groupid=group or f"perf-consumer-{random.randrange(100_000)}",
        autooffset_reset="largest" if from_latest else "smallest",
        consumer_timeout_ms=consumer_timeout_ms,
        fetch_size=fetch_size,
        socket_buffersize=socket_buffer_size,
    )
    receivers = functools.partial(
        _receivers, limit=messages, stop=stop, printer=printer, timeout_ms=consumer_timeout_ms
    )
    with connected(zookeeper) as registry:
        if not registry.children(paths.topic_path(topic)):
            meant = suggestion(topic, cluster.topics(registry))
            fail(f"no topic {topic!r} on a live broker{meant}")
        _forget(registry, config.group_id)
        try:
            with ConsumerConnector(config, registry) as connector:
                streams = connector.create_message_streams({topic: threads})[topic]
                Worker(lambda: end_on(stop, connector, registry), "stop", restarts=False).start()
                owned = connector.owned()
                printer.header(has_thread=True)
                _run_all(receivers(streams), printer, lambda: unread(connector, owned, stop))
        finally:
            if not group:
                _forget_quietly(registry, config.group_id)


def _receivers(
    streams: Sequence[MessageStream],
    *,
    limit: int,
    stop: threading.Event,
    printer: "_Printer",
    timeout_ms: int,
) -> "list[_Receiver]":
    return [
        _Receiver(number, _sizes(stream), limit, stop, printer, timeout_ms)
        for number, stream in enumerate(streams)
    ]


def _forget(registry: Registry, group: str) -> None:
    if registry.children(paths.consumer_ids_path(group)):
        fail(f"group {group!r} has members: stop them first, or take another --group")
    registry.delete_recursive(paths.group_path(group))


def _forget_quietly(registry: Registry, group: str) -> None:
    try:
        registry.delete_recursive(paths.group_path(group))
    except CoordinationError:
        pass  # a leftover group does no harm


class _Printer:
    def __init__(
        self, rows: Rows, dates: DateFormat, fetch_size: int, interval: int | None
    ) -> None:
        self._rows = rows
        self._dates = dates
        self._fetch_size = fetch_size
        self._has_thread = False
        self.interval = interval

    def header(self, *, has_thread: bool) -> None:
        self._has_thread = has_thread
        moments = ("start.time", "end.time") if self.interval is None else ("time",)
        self._rows.header((*moments, *SHARED))

    def detailed(self, worker: PerfThread, messages: int, data_bytes: int, since_ms: int) -> None:
        """Print a row. The group consumer's have the thread's number, which the header does not
        name, before the fetch size."""
        time_ms = now_ms()
        rates = (data_bytes, messages, time_ms - since_ms)
        fields, record = self._values(worker.data_bytes, worker.count, *rates)
        thread = (str(worker.number),) if self._has_thread else ()
        self._rows.row(
            (self._dates.text(time_ms), *thread, *fields),
            {"time": time_ms, "thread.id": worker.number, **record},
        )

    def summary(self, start_ms: int, end_ms: int, messages: int, data_bytes: int) -> None:
        fields, record = self._values(data_bytes, messages, data_bytes, messages, end_ms - start_ms)
        self._rows.row(
            (self._dates.text(start_ms), self._dates.text(end_ms), *fields),
            {"start.time": start_ms, "end.time": end_ms, **record},
        )

    def _values(
        self, data_bytes: int, messages: int, some_bytes: int, some: int, elapsed_ms: int
    ) -> tuple[tuple[str, ...], dict[str, object]]:
        megabytes = data_bytes / MB
        mb_s, messages_s = per_second(some_bytes / MB, elapsed_ms), per_second(some, elapsed_ms)
        values = (self._fetch_size, megabytes, mb_s, messages, messages_s)
        texts = tuple(f"{v:.4f}" if isinstance(v, float) else str(v) for v in values)
        return texts, dict(zip(SHARED, values, strict=True))


class _Receiver(PerfThread):
    """One thread that counts what arrives, pieces of (messages, bytes). `timeout_ms`: how long
    nothing has come when a ConsumerTimeout is raised."""

    def __init__(  # noqa: PLR0917
        self,
        number: int,
        pieces: Iterator[tuple[int, int]],
        limit: int,
        stop: threading.Event,
        printer: _Printer,
        timeout_ms: int = 0,
    ) -> None:
        super().__init__(number, printer.interval, printer.detailed)
        self._pieces = pieces
        self._limit = limit
        self._stop = stop
        self._timeout_ms = timeout_ms
        self.is_silent = False  # nothing came any more

    def work(self) -> int:
        try:
            for messages, data_bytes in self._pieces:
                self.counted(messages, data_bytes)
                if self.count >= self._limit or self._stop.is_set():
                    break
        except ConsumerTimeout:
            self.is_silent = True
            return self._timeout_ms
        return 0


def _sizes(stream: MessageStream) -> Iterator[tuple[int, int]]:
    for message in stream:
        yield 1, len(message.payload)


def _fetched(
    address: tuple[str, int], topic: str, partition: int, fetch_size: int, *, latest: bool
) -> Iterator[tuple[int, int]]:
    """Single fetches until an empty answer."""
    with SimpleConsumer(*address) as client:
        offset = client.latest(topic, partition) if latest else client.earliest(topic, partition)
        while True:
            found = client.fetch(topic, partition, offset, fetch_size)
            valid = found.valid_bytes()
            if not valid:
                return
            for messages in found.pieces():
                yield len(messages), sum(len(payload) for payload, _ in messages)
            offset += valid


def _run_all(
    receivers: Sequence[_Receiver], printer: _Printer, look: Callable[[], list[str]] = list
) -> None:
    """Run the receivers and print the summary; exits with status 1 for a failure, for no message,
    and for what `look` finds unread when all ended by silence."""
    start_ms, end_ms = run_threads(receivers)
    count = sum(one.count for one in receivers)
    if printer.interval is None:
        printer.summary(start_ms, end_ms, count, sum(one.data_bytes for one in receivers))
    exit_with_failures(receivers)
    left = look() if all(one.is_silent for one in receivers) else []
    for line in left:
        complain(line)
    if not count:
        fail("no message arrived")
    if left:
        raise SystemExit(1)
