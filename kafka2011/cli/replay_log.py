"""`kafka2011 replay-log`: produce a topic's messages again, into another topic (0.7's
ReplayLogProducer).

It reads with a group of its own, from the smallest offset, and ends when nothing came for 10 s.
`Unlike 0.7:` the group has a temporary name, so that two replays do not share one, and is deleted
afterwards; a topic is not replayed into itself without a --messages bound; and status 1 means that
something may not have arrived. Payloads stay as they are; which partition they go to does not.
"""

import random
import threading
from typing import Annotated, Any

import typer

from kafka2011.cli.connections import connected, zookeeper_address
from kafka2011.cli.console_consumer import end_on
from kafka2011.cli.options import ZooKeeper
from kafka2011.cli.output import complain, fail, number_of
from kafka2011.cli.producer_perf import BROKERINFO_HELP, brokerinfo
from kafka2011.cli.unread import unread
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import ConsumerTimeout
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.consumer.stream import MessageStream
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.errors import CoordinationError
from kafka2011.producer import Producer
from kafka2011.producer.asynchronous import broker_queue
from kafka2011.protocol.errors import IllegalTopicName, KafkaError
from kafka2011.protocol.names import check_topic
from kafka2011.runtime import logs
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event
from kafka2011.runtime.workers import Worker

app = typer.Typer(add_completion=False)


@app.command()
def run(  # noqa: PLR0917 (the original's options)
    brokers: Annotated[str, typer.Option("--brokerinfo", help=BROKERINFO_HELP)],
    inputtopic: Annotated[str, typer.Option("--inputtopic", help="topic to read")],
    outputtopic: Annotated[str, typer.Option("--outputtopic", help="topic to write")],
    zookeeper: ZooKeeper = "",
    messages: Annotated[
        int, typer.Option("--messages", min=-1, help="stop after this many messages; -1: all")
    ] = -1,
    is_async: Annotated[bool, typer.Option("--async", help="send through the queue")] = False,
    delay_btw_batch_ms: Annotated[
        int, typer.Option("--delay-btw-batch-ms", min=0, help="pause after each batch, ms")
    ] = 0,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="messages in one set")
    ] = 200,
    threads: Annotated[
        int, typer.Option("--threads", min=1, help="number of streams, each with a thread")
    ] = 1,
    reporting_interval: Annotated[
        int, typer.Option("--reporting-interval", min=1, help="messages between two progress lines")
    ] = 5000,
    compression_codec: Annotated[
        int, typer.Option("--compression-codec", min=0, max=2, help="0: none, 1: gzip, 2: snappy")
    ] = 0,
    consumer_timeout_ms: Annotated[
        int,
        typer.Option(
            "--consumer-timeout-ms", min=1, help="stop when no message arrived for this long, ms"
        ),
    ] = 10_000,
) -> None:
    """Read a topic from its start and produce every message to another topic.

    For example: kafka2011 replay-log --zookeeper localhost:2181
    --brokerinfo zk.connect=localhost:2181 --inputtopic clicks --outputtopic clicks-again

    Status 1 when something could not be read, or is not known to be on the target's disks.
    """
    target = brokerinfo(brokers)
    zookeeper = zookeeper_address(zookeeper)
    if messages == 0:
        fail("--messages 0: nothing to replay", 2)
    if inputtopic == outputtopic and messages < 0:
        fail("replaying a topic into itself never ends: give --messages, or another topic", 2)
    config = load_or_exit(
        ConsumerConfig,
        log_level="WARNING",
        zk_connect=zookeeper,
        groupid=f"replay-log-{random.randrange(100_000)}",
        autooffset_reset="smallest",
        consumer_timeout_ms=consumer_timeout_ms,
    )
    # The end names what was lost.
    logs.configure("replay-log", level="WARNING", but=broker_queue.__name__)
    settings: dict[str, Any] = {
        **target,
        "producer_type": "async" if is_async else "sync",
        "compression_codec": str(compression_codec),
        "batch_size": batch_size,
        "enqueue_timeout_ms": -1,
    }
    stop = stop_event()
    with connected(zookeeper) as registry:
        try:
            for name in (inputtopic, outputtopic):
                check_topic(name)
            if not registry.children(paths.topic_path(inputtopic)):
                meant = suggestion(inputtopic, cluster.topics(registry))
                fail(f"no topic {inputtopic!r} on a live broker{meant}")
            producers = [Producer(**settings) for _ in range(threads)]
        except IllegalTopicName as error:
            fail(str(error), 2)
        except KafkaError as error:
            fail(f"cannot reach the brokers: {error}")
        tally = _Tally(messages, reporting_interval, stop)
        try:
            with ConsumerConnector(config, registry) as connector:
                streams = connector.create_message_streams({inputtopic: threads})[inputtopic]
                owned = connector.owned()
                Worker(lambda: end_on(stop, connector, registry), "stop", restarts=False).start()
                replays = [
                    _Replay(stream, producer, outputtopic, batch_size, delay_btw_batch_ms, tally)
                    for stream, producer in zip(streams, producers, strict=True)
                ]
                for replay in replays:
                    replay.worker.join()
                # --messages, a signal and a failure set `stop`; else silence has ended the threads.
                tally.failures += unread(connector, owned, stop)
        finally:
            registry.delete_recursive(paths.group_path(config.group_id))
    print(f"{number_of(tally.sent_count, 'message')} replayed from {inputtopic} to {outputtopic}")
    for failure in tally.failures:
        complain(failure)
    raise SystemExit(1 if tally.failures else 0)


class _Tally:
    """Counts the messages of all threads, and limits them to --messages."""

    def __init__(self, limit: int, interval: int, stop: threading.Event) -> None:
        self._limit = limit
        self._interval = interval
        self._lock = threading.Lock()
        self.stop = stop
        self.count = 0  # taken from the streams
        self.sent_count = 0
        self.failures: list[str] = []

    def take(self) -> bool:
        with self._lock:
            if self.stop.is_set() or 0 <= self._limit <= self.count:
                return False
            self.count += 1
            if self.count % self._interval == 0:
                complain(number_of(self.count, "message"))
            if self.count == self._limit:
                self.stop.set()  # threads that wait for a message need no more
            return True

    def sent(self, count: int) -> None:
        with self._lock:
            self.sent_count += count

    def fail(self, reason: str) -> None:
        with self._lock:
            self.failures.append(reason)


class _Replay:
    """One thread: a stream into a producer."""

    def __init__(  # noqa: PLR0917
        self,
        stream: MessageStream,
        producer: Producer,
        topic: str,
        batch_size: int,
        delay_ms: int,
        tally: _Tally,
    ) -> None:
        self._stream = stream
        self._producer = producer
        self._topic = topic
        self._batch_size = batch_size
        self._delay_s = delay_ms / 1000
        self._tally = tally
        self.worker = Worker(
            self._run, "replay", restarts=False, on_failure=lambda error: self._fail(repr(error))
        )
        self.worker.start()

    def _run(self) -> None:
        batch: list[bytes] = []
        try:
            with self._producer:
                try:
                    for message in self._stream:
                        if not self._tally.take():
                            break
                        batch.append(message.payload)
                        if len(batch) == self._batch_size:
                            full, batch = batch, []
                            self._send(full)
                except ConsumerTimeout:
                    pass
                finally:
                    if batch:
                        self._send(batch)
        except (KafkaError, CoordinationError) as error:
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        self._tally.fail(reason)
        self._tally.stop.set()

    def _send(self, batch: list[bytes]) -> None:
        self._producer.send(self._topic, batch)
        self._tally.sent(len(batch))
        if self._delay_s:
            self._tally.stop.wait(self._delay_s)
