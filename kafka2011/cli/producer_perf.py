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

from kafka2011.cli.output import complain, fail
from kafka2011.cli.perf_output import (
    DATE_FORMAT,
    MB,
    DateFormat,
    DatePattern,
    HidesHeader,
    PrintsJson,
    ReportingInterval,
    Rows,
    ShowsDetailedStats,
    per_second,
)
from kafka2011.coordination.errors import CoordinationError
from kafka2011.producer import Producer
from kafka2011.protocol.errors import IllegalTopicName, KafkaError
from kafka2011.protocol.names import check_topic
from kafka2011.runtime import logs
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.signals import stop_event
from kafka2011.runtime.workers import Worker

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
        int, typer.Option("--messages", min=1, help="number of messages, over all threads")
    ],
    message_size: Annotated[
        int, typer.Option("--message-size", min=1, help="bytes of one message")
    ] = 100,
    vary_message_size: Annotated[
        bool, typer.Option("--vary-message-size", help="random sizes from 1 to --message-size")
    ] = False,
    is_async: Annotated[
        bool, typer.Option("--async", help="send single messages through the queue")
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="messages in one set")
    ] = 200,
    threads: Annotated[
        int, typer.Option("--threads", min=1, help="number of threads, each with a producer")
    ] = 10,
    compression_codec: Annotated[
        int, typer.Option("--compression-codec", min=0, max=2, help="0: none, 1: gzip, 2: snappy")
    ] = 0,
    initial_message_id: Annotated[
        int | None,
        typer.Option(
            "--initial-message-id",
            min=0,
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
    logs.configure("producer-perf", level="WARNING")
    dates = DateFormat(date_format)
    rows = Rows(hides_header=hide_header, as_json=as_json)
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
    shape = Shape(compression_codec, message_size, batch_size)
    payload = payloads(topic, message_size, vary_message_size, initial_message_id, count)
    interval = reporting_interval if show_detailed_stats else None
    stop = stop_event()
    workers: list[_Worker] = []
    try:
        check_topic(topic, "0.7")
        workers += [
            _Worker(number, topic, Producer(**settings), payload, stop) for number in range(threads)
        ]
    except IllegalTopicName as error:
        fail(str(error), 2)
    except (KafkaError, CoordinationError) as error:
        fail(f"cannot reach the brokers: {error}")

    def report(worker: _Worker, messages: int, data_bytes: int, since_ms: int) -> None:
        time_ms = now_ms()
        rates = _rates(data_bytes, messages, time_ms - since_ms)
        values = (time_ms, shape.codec, worker.number, shape.message_size, shape.batch_size)
        _row(rows, DETAILED, (dates.text(time_ms),), values, worker.totals(), rates)

    rows.header(DETAILED if show_detailed_stats else SUMMARY)
    start_ms = now_ms()
    for worker in workers:
        worker.begin(count, per_send, interval, report)
    for worker in workers:
        worker.thread.join()
    end_ms = now_ms()
    if not show_detailed_stats:
        sent = sum(worker.sent for worker in workers)
        sent_bytes = sum(worker.sent_bytes for worker in workers)
        rates = _rates(sent_bytes, sent, end_ms - start_ms)
        moments = (dates.text(start_ms), dates.text(end_ms))
        _row(rows, SUMMARY, moments, (start_ms, end_ms, *shape), (sent_bytes, sent), rates)
    failures = [worker for worker in workers if worker.failure]
    for worker in failures:
        complain(f"thread {worker.number}, after {worker.sent} messages: {worker.failure}")
    if failures:
        raise SystemExit(1)


class Shape(NamedTuple):
    """The fields that are the same in every row."""

    codec: int
    message_size: int
    batch_size: int


def _rates(data_bytes: int, messages: int, elapsed_ms: int) -> tuple[float, float]:
    return per_second(data_bytes / MB, elapsed_ms), per_second(messages, elapsed_ms)


def _row(  # noqa: PLR0917 (one row's parts)
    rows: Rows,
    titles: Sequence[str],
    dates: tuple[str, ...],
    values: tuple[int, ...],
    totals: tuple[int, int],
    rates: tuple[float, float],
) -> None:
    """`dates` are the texts of the first of `values`; `totals` are bytes and messages."""
    megabytes = totals[0] / MB
    rows.row(
        (
            *dates,
            *map(str, values[len(dates) :]),
            f"{megabytes:.2f}",
            f"{rates[0]:.4f}",
            str(totals[1]),
            f"{rates[1]:.4f}",
        ),
        dict(zip(titles, (*values, megabytes, rates[0], totals[1], rates[1]), strict=True)),
    )


Report = Callable[["_Worker", int, int, int], None]
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


class _Worker:
    """One thread and its producer."""

    def __init__(
        self, number: int, topic: str, producer: Producer, payload: Payload, stop: threading.Event
    ) -> None:
        self.number = number
        self.sent = self.sent_bytes = 0
        self.failure = ""
        self.thread = Worker(self._run, f"perf-{number}", restarts=False, on_failure=self._failed)
        self._topic = topic
        self._producer = producer
        self._payload = payload
        self._stop = stop
        self._count = self._per_send = 0
        self._interval: int | None = None
        self._report: Report | None = None

    def begin(self, count: int, per_send: int, interval: int | None, report: Report) -> None:
        self._count, self._per_send = count, per_send
        self._interval, self._report = interval, report
        self.thread.start()

    def totals(self) -> tuple[int, int]:
        return self.sent_bytes, self.sent

    def _run(self) -> None:
        try:
            try:
                self._send_all()
            finally:
                self._producer.close()
        except (KafkaError, CoordinationError) as error:
            self.failure = str(error)

    def _failed(self, error: BaseException) -> None:
        self.failure = repr(error)

    def _send_all(self) -> None:
        send, payload, topic = self._producer.send, self._payload, self._topic
        since_ms, before, before_bytes = now_ms(), 0, 0
        while self.sent < self._count and not self._stop.is_set():
            numbers = range(self.sent, self.sent + self._per_send)
            batch = [payload(self.number, number) for number in numbers]
            send(topic, batch[0] if self._per_send == 1 else batch)
            self.sent += len(batch)
            self.sent_bytes += sum(map(len, batch))
            interval = self._interval
            if interval and self._report and self.sent // interval > before // interval:
                self._report(self, self.sent - before, self.sent_bytes - before_bytes, since_ms)
                since_ms, before, before_bytes = now_ms(), self.sent, self.sent_bytes
