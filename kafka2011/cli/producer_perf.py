"""`kafka2011 producer-perf`: how fast this machine produces (0.7's ProducerPerformance).

Options, columns and defaults are the original's. `Unlike 0.7:` the
summary's end time is taken when all is on the brokers' disks, not when the last bytes were handed
to the kernel; and what could not be sent is status 1. Threads share one interpreter: --threads 1
is usually the fastest.
"""

import random
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from kafka2011.cli.output import fail
from kafka2011.cli.perf import (
    DATE_FORMAT,
    MB,
    MESSAGES_MAX,
    DateFormat,
    DatePattern,
    HidesHeader,
    PerfThread,
    PrintsJson,
    Report,
    ReportingInterval,
    Rows,
    ShowsDetailedStats,
    exit_with_failures,
    per_second,
    run_threads,
)
from kafka2011.coordination.errors import CoordinationError
from kafka2011.producer import Producer
from kafka2011.producer.asynchronous import broker_queue
from kafka2011.protocol.errors import IllegalTopicName, KafkaError
from kafka2011.protocol.names import check_topic
from kafka2011.runtime import logs
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.shared_settings import INT_MAX
from kafka2011.runtime.signals import stop_event

app = typer.Typer(add_completion=False)

SUMMARY = (
    "start.time",
    "end.time",
    "compression",
    "message.size",
    "batch.size",
    "total.data.sent.in.MB",
    "MB.sec",
    "total.data.sent.in.nMsg",
    "nMsg.sec",
)
DETAILED = ("time", "compression", "thread.id", *SUMMARY[3:])

BATCH_MAX = 1_000_000  # a batch is made whole, before a signal to stop is looked at
THREADS_MAX = 1_000

BROKERINFO_HELP = "broker.list=ID:HOST:PORT,... or zk.connect=HOST:PORT/CHROOT"


def brokerinfo(text: str) -> dict[str, str]:
    """The producer's setting in `--brokerinfo`. Exits with status 2 for anything else."""
    name, equals, value = text.partition("=")
    fields = {"broker.list": "broker_list", "zk.connect": "zk_connect"}
    if not equals or name not in fields or not value:
        fail(f"--brokerinfo {text!r} must be {BROKERINFO_HELP}", 2)
    return {fields[name]: value}


@app.command()
def run(  # noqa: PLR0917 (the original's options)
    brokers: Annotated[str, typer.Option("--brokerinfo", help=BROKERINFO_HELP)],
    topic: Annotated[str, typer.Option("--topic", help="topic")],
    messages: Annotated[
        int,
        typer.Option(
            "--messages", min=1, max=MESSAGES_MAX, help="number of messages, over all threads"
        ),
    ],
    message_size: Annotated[
        int, typer.Option("--message-size", min=1, max=INT_MAX, help="bytes of one message")
    ] = 100,
    vary_message_size: Annotated[
        bool, typer.Option("--vary-message-size", help="random sizes from 1 to --message-size")
    ] = False,
    is_async: Annotated[
        bool, typer.Option("--async", help="send single messages through the queue")
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=BATCH_MAX, help="messages in one set")
    ] = 200,
    threads: Annotated[
        int,
        typer.Option(
            "--threads", min=1, max=THREADS_MAX, help="number of threads, each with a producer"
        ),
    ] = 10,
    compression_codec: Annotated[
        int, typer.Option("--compression-codec", min=0, max=2, help="0: none, 1: gzip, 2: snappy")
    ] = 0,
    initial_message_id: Annotated[
        int | None,
        typer.Option(
            "--initial-message-id",
            min=0,
            max=MESSAGES_MAX,
            help="number the messages from here, as text instead of zeros",
        ),
    ] = None,
    reporting_interval: ReportingInterval = 5000,
    date_format: DatePattern = DATE_FORMAT,
    show_detailed_stats: ShowsDetailedStats = False,
    hide_header: HidesHeader = False,
    as_json: PrintsJson = False,
) -> None:
    """Send messages as fast as possible, and print the rate.

    For example: kafka2011 producer-perf --brokerinfo broker.list=0:localhost:9092 --topic perf
    --messages 1000000 --threads 1

    Each thread sends messages / threads of them, in whole batches unless --async. Status 1 when
    some are not known to be on the brokers' disks.
    """
    if batch_size * message_size > INT_MAX:
        fail(
            f"{batch_size:,} messages of {message_size:,} bytes are no batch: together at most "
            f"{INT_MAX:,} bytes",
            2,
        )
    # The end names what was lost.
    logs.configure("producer-perf", level="WARNING", but=broker_queue.__name__)
    settings: dict[str, Any] = {
        **brokerinfo(brokers),
        "producer_type": "async" if is_async else "sync",
        "compression_codec": str(compression_codec),
        "batch_size": batch_size,
        "enqueue_timeout_ms": -1,
        "max_message_bytes": max(1_000_000, message_size),
    }
    per_send = 1 if is_async else batch_size
    count = messages // threads // per_send * per_send
    if not count:
        fail(
            f"{messages} messages over {threads} threads leave no batch of {batch_size} each: "
            "more --messages, fewer --threads or a smaller --batch-size",
            2,
        )
    printer = _Printer(
        Rows(hides_header=hide_header, as_json=as_json),
        DateFormat(date_format),
        Shape(compression_codec, message_size, batch_size),
    )
    payload = payloads(topic, message_size, vary_message_size, initial_message_id, count)
    interval = reporting_interval if show_detailed_stats else None
    load = _Load(topic, payload, count, per_send, stop_event())
    try:
        check_topic(topic, "0.7")
        senders = [
            _Sender(number, Producer(**settings), load, interval, printer.detailed)
            for number in range(threads)
        ]
    except IllegalTopicName as error:
        fail(str(error), 2)
    except (KafkaError, CoordinationError) as error:
        fail(f"cannot reach the brokers: {error}")
    printer.header(is_detailed=show_detailed_stats)
    start_ms, end_ms = run_threads(senders)
    if not show_detailed_stats:
        printer.summary(start_ms, end_ms, senders)
    exit_with_failures(senders)


class Shape(NamedTuple):
    """The fields that are the same in every row."""

    codec: int
    message_size: int
    batch_size: int


class _Printer:
    def __init__(self, rows: Rows, dates: DateFormat, shape: Shape) -> None:
        self._rows = rows
        self._dates = dates
        self._shape = shape

    def header(self, *, is_detailed: bool) -> None:
        self._rows.header(DETAILED if is_detailed else SUMMARY)

    def detailed(self, sender: PerfThread, messages: int, data_bytes: int, since_ms: int) -> None:
        time_ms = now_ms()
        codec, *sizes = self._shape
        totals = (sender.data_bytes, sender.count)
        figures = self._figures(totals, (data_bytes, messages), time_ms - since_ms)
        values = (codec, sender.number, *sizes)
        self._row(DETAILED, (time_ms,), values, figures)

    def summary(self, start_ms: int, end_ms: int, senders: Sequence[PerfThread]) -> None:
        totals = (sum(one.data_bytes for one in senders), sum(one.count for one in senders))
        figures = self._figures(totals, totals, end_ms - start_ms)
        self._row(SUMMARY, (start_ms, end_ms), self._shape, figures)

    @staticmethod
    def _figures(
        totals: tuple[int, int], part: tuple[int, int], elapsed_ms: int
    ) -> tuple[float, float, int, float]:
        """MB, MB/s, messages, messages/s: totals, and rates of the part (bytes, messages each)."""
        rates = per_second(part[0] / MB, elapsed_ms), per_second(part[1], elapsed_ms)
        return totals[0] / MB, rates[0], totals[1], rates[1]

    def _row(
        self,
        titles: Sequence[str],
        times_ms: tuple[int, ...],
        values: tuple[int, ...],
        figures: tuple[float, float, int, float],
    ) -> None:
        megabytes, mb_s, messages, messages_s = figures
        texts = (f"{megabytes:.2f}", f"{mb_s:.4f}", str(messages), f"{messages_s:.4f}")
        self._rows.row(
            (*map(self._dates.text, times_ms), *map(str, values), *texts),
            dict(zip(titles, (*times_ms, *values, *figures), strict=True)),
        )


Payload = Callable[[int, int], bytes]


def payloads(topic: str, size: int, varies: bool, first_id: int | None, per_thread: int) -> Payload:
    """(thread, number) -> payload. Zeros, or 0.7's numbered text padded with x."""
    if first_id is not None:

        def numbered(thread: int, number: int) -> bytes:
            message_id = first_id + thread * per_thread + number
            text = f"Topic:{topic}:ThreadID:{thread}:MessageID:{message_id:010}:"
            return text.encode()[:size].ljust(size, b"x")

        return numbered
    if varies:
        rng = random.Random()
        zeros = bytes(size)
        return lambda _thread, _number: zeros[: rng.randint(1, size)]
    fixed = bytes(size)
    return lambda _thread, _number: fixed


class _Load(NamedTuple):
    """What each thread sends: `limit` messages, `per_send` at a time, until `stop`."""

    topic: str
    payload: Payload
    limit: int
    per_send: int
    stop: threading.Event


class _Sender(PerfThread):
    """One thread and its producer."""

    def __init__(
        self, number: int, producer: Producer, load: _Load, interval: int | None, report: Report
    ) -> None:
        super().__init__(number, interval, report)
        self._producer = producer
        self._load = load

    def work(self) -> int:
        try:
            self._send_all()
        finally:
            self._producer.close()
        return 0

    def _send_all(self) -> None:
        send = self._producer.send
        topic, payload, limit, per_send, stop = self._load
        while self.count < limit and not stop.is_set():
            numbers = range(self.count, self.count + per_send)
            batch = [payload(self.number, number) for number in numbers]
            send(topic, batch[0] if per_send == 1 else batch)
            self.counted(len(batch), sum(map(len, batch)))
