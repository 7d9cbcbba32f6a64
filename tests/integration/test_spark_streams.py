"""The stream jobs over a real broker, against figures counted here in plain Python; the writer."""

import json
import os
import random
import re
import signal
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from pyspark.errors import StreamingQueryException

from kafka2011 import streams
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import cluster, paths
from kafka2011.events import codec
from kafka2011.events.forms import FORMS_2011
from kafka2011.producer import Producer
from kafka2011.protocol import message_set
from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.streams import runner
from kafka2011.services.warehouse.streams.config import StreamConfig
from kafka2011.services.warehouse.streams.jobs import BY_NAME
from kafka2011.services.warehouse.streams.runner import StreamError, read_items, start_stream
from kafka2011.services.warehouse.streams.store_results import append_batch
from tests.support.brokers import RunningBroker, start_broker
from tests.support.commands import children_of, held_port, start_command
from tests.support.object_store import BUCKET, environment, object_store
from tests.support.waiting import DEADLINE_S, despite_slow_starts, run_query, wait_until
from tests.support.zookeeper import registry_at

pytestmark = [pytest.mark.integration, pytest.mark.spark]

START = datetime(2026, 5, 17, 10, 0, 20, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CATEGORIES = {"job-0": "jobs", "job-1": "jobs", "ad-2": "ads"}
Event = dict[str, Any]
FIELDS: dict[str, Event] = {
    "page-view": {
        "path": "/late",
        "host": "h",
        "status": 200,
        **dict.fromkeys(("referer", "bytes", "agent")),
    },
    "search": {"query": "kafka", "result_count": 1, "elapsed_ms": 3},
    "click": {"path": "/p", "item": "late", "position": 0, "impression": bytes(16)},
    "impression": {
        "path": "/p",
        "item": "late",
        "position": 0,
        "price_micros": 0,
        **dict.fromkeys(("search", "query", "campaign")),
    },
}


class Activity:
    """Events of a few members over ten minutes; `made` keeps what they say, by topic."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.made: dict[str, list[Event]] = defaultdict(list)
        self.number = 0

    def payload(self, topic: str, at: datetime, member_id: int, **fields: Any) -> bytes:
        self.number += 1
        ms = int(at.timestamp() * 1000)
        header = {"guid": self.number.to_bytes(16, "big"), "time": ms, "server": "s"}
        header["service"] = "web"
        event = {"header": header, "event_time": ms, "member_id": member_id}
        return codec.encode(topic, {**event, **FIELDS[topic], **fields})

    def make(self) -> tuple[str, int, bytes]:
        """Topic, member and payload of one more event."""
        at = START + timedelta(seconds=self.rng.randrange(600))
        member = self.rng.randrange(1, 9)
        topic = self.rng.choice(["page-view", "page-view", "search", "click", "click"])
        fields: Event = {}
        if topic == "page-view":
            fields["path"] = f"/p/{self.rng.randrange(3)}"
        elif topic == "search":
            at -= timedelta(minutes=self.rng.choice([0, 26]))
        else:
            fields["item"] = self.rng.choice([*CATEGORIES, "new-3"])
        self.made[topic].append({"at": at, "member_id": member, **fields})
        return topic, member, self.payload(topic, at, member, **fields)


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: Any
) -> Iterator[tuple[RunningBroker, str]]:
    zk_connect = f"{zookeeper.host}:{zookeeper.port}/streams"
    directory = tmp_path_factory.mktemp("streams")
    with start_broker(directory, 11, zk_connect, num_partitions=2) as started:
        yield started, zk_connect


@pytest.fixture(scope="module")
def activity(broker: tuple[RunningBroker, str]) -> Activity:
    """What stands in the topics, keyed by member; some of it was sent twice."""
    made = Activity(3)
    late = START + timedelta(hours=3)  # every window before it is closed
    with Producer(zk_connect=broker[1]) as producer:
        for topic, member in (("page-view", 0), ("search", 0), ("click", -1), ("impression", 0)):
            producer.send(topic, made.payload(topic, late, member))
        producer.flush()
    with registry_at(broker[1]) as registry:
        # A key places messages in all partitions once these are registered.
        wait_until(
            lambda: all(len(cluster.partitions_of(registry, topic)) == 2 for topic in FIELDS),
            "the topics in ZooKeeper",
        )
    with Producer(zk_connect=broker[1]) as producer:
        for _ in range(400):
            topic, member, payload = made.make()
            again = topic != "page-view" and made.rng.random() < 0.1
            for _ in range(1 + again):
                producer.send(topic, payload, member)
        for number in range(60):  # by item, as frontend.keyed.items has them
            item = f"item-{number % 7}"
            producer.send("impression", made.payload("impression", START, number, item=item), item)
            made.made["impression"].append({"item": item})
        producer.flush()
    return made


@pytest.fixture
def run(
    spark: Any, broker: tuple[RunningBroker, str], activity: Activity, tmp_path: Path
) -> Iterator[Any]:
    """Runs a job over what is there and returns the rows of its files."""
    shuffles = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")

    def once(name: str, **settings: Any) -> list[Any]:
        config = StreamConfig(
            zk_connect=broker[1], stream_dir=tmp_path, event_forms=FORMS_2011, **settings
        )
        run_query(lambda: start_stream(spark, config, BY_NAME[name], once=True))
        if BY_NAME[name].is_ranked or BY_NAME[name].result_topic:
            return []
        rows: list[Any] = spark.read.parquet(str(tmp_path / name)).collect()
        return rows

    yield once
    spark.conf.set("spark.sql.shuffle.partitions", shuffles)


def utc(moment: datetime) -> datetime:
    """Spark hands out times of the session's zone, UTC, without one."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def windows(at: datetime, length: timedelta, slide: timedelta) -> list[datetime]:
    last = at - (at - datetime(1970, 1, 1, tzinfo=UTC)) % slide
    return [last - number * slide for number in range(length // slide)]


def test_tumbling_and_sliding_windows(run: Any, activity: Activity) -> None:
    for name, slide in (("views-tumbling", MINUTE), ("views-sliding", MINUTE / 3)):
        expected: Counter[tuple[datetime, str]] = Counter()
        for row in activity.made["page-view"]:
            for start in windows(row["at"], MINUTE, slide):
                expected[start, row["path"]] += 1
        found = {(utc(row.window_start), row.path): row.views for row in run(name)}
        assert found == expected


def test_results_in_a_store_are_exact_although_every_batch_dies_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its results are in the store, or after that; each try is on another machine."""
    rng = random.Random(7)
    views = [(START + timedelta(seconds=n), f"/p/{rng.randrange(3)}") for n in range(300)]
    closing_event = (START + timedelta(hours=3), "/late")
    batches = [views[:100], views[100:200], views[200:], [closing_event]]
    (tmp_path / "views").mkdir()
    for number, rows in enumerate(batches):
        lines = [json.dumps({"event_time": at.isoformat(), "path": path}) for at, path in rows]
        file = tmp_path / "views" / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (number, number))  # by which Spark orders them
    died: list[int] = []

    def dies_once(rows: Any, number: int) -> None:
        is_first = number not in died
        died.append(number)
        if is_first and number % 2:
            raise RuntimeError("dies before its results")
        append_batch(config.stream_dir / job.name, rows, number)
        if is_first:
            raise RuntimeError("dies after its results")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = StreamConfig(stream_dir=ObjectPath(BUCKET, "streams"))
    job = BY_NAME["views-tumbling"]

    def ends() -> bool:
        with runner.stored_checkpoint(config, job) as checkpoint:
            assert checkpoint is not None
            events = (
                spark.readStream.schema("event_time timestamp, path string")
                .option("maxFilesPerTrigger", 1)
                .json(str(tmp_path / "views"))
                .withWatermark("event_time", "1 minute")
            )
            query = (
                streams.windowed_counts(events, "path", window_ms=60_000, count="views")
                .writeStream.option("checkpointLocation", str(checkpoint.local))
                .foreachBatch(runner.after_publishing(checkpoint, dies_once))
                .trigger(availableNow=True)
                .start()
            )
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if not re.search("dies (before|after) its results", str(error)):
                    raise
                return False
            return True

    shuffles = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        with object_store(tmp_path / "store") as store:
            for name, value in environment(store.url).items():
                monkeypatch.setenv(name, value)
                monkeypatch.setitem(spark.sparkContext.environment, name, value)
            while not ends():
                assert len(died) < 50
            table = storage.open_table(config.stream_dir / job.name).to_pyarrow_table()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", shuffles)
    assert len(set(died)) >= len(batches)
    assert set(Counter(died).values()) == {2}
    expected = Counter((windows(at, MINUTE, MINUTE)[0], path) for at, path in views)
    found = [(row["window_start"], row["path"], row["views"]) for row in table.to_pylist()]
    assert sorted(found) == sorted((*key, count) for key, count in expected.items())


def test_sessions_end_after_a_pause(run: Any, activity: Activity) -> None:
    times = defaultdict(list)
    for row in activity.made["page-view"]:
        times[row["member_id"]].append(row["at"])
    expected = []
    for member, stamps in times.items():
        last = None
        for at in sorted(stamps):
            if last is None or at - last >= 2 * MINUTE:
                expected.append([member, at, 0])
            expected[-1][2] += 1
            last = at
    found = run("member-sessions", session_gap_ms=120_000)
    assert sorted([row.member_id, utc(row.session_start), row.views] for row in found) == sorted(
        expected
    )


def test_a_search_is_joined_with_the_clicks_that_follow(run: Any, activity: Activity) -> None:
    expected = Counter(
        (search["member_id"], search["at"], click["at"], click["item"])
        for search in activity.made["search"]
        for click in activity.made["click"]
        if search["member_id"] == click["member_id"]
        and timedelta() <= click["at"] - search["at"] <= 30 * MINUTE
    )
    assert len(expected) > 50
    # Clicks up to 36 minutes behind a search: some are too late.
    found = run("search-to-click")
    assert (
        Counter((r.member_id, utc(r.searched_at), utc(r.clicked_at), r.item) for r in found)
        == expected
    )


def test_clicks_are_joined_with_a_table_of_another_store(
    spark: Any, run: Any, activity: Activity, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "items.db")) as store:
        store.execute("CREATE TABLE items (item TEXT, category TEXT)")
        store.executemany("INSERT INTO items VALUES (?, ?)", CATEGORIES.items())
        store.commit()
    expected: Counter[tuple[datetime, str]] = Counter()
    for row in activity.made["click"]:
        (start,) = windows(row["at"], MINUTE, MINUTE)
        expected[start, CATEGORIES.get(row["item"], "unknown")] += 1
    found = run("clicks-by-category", items=tmp_path / "items.db")
    assert {(utc(row.window_start), row.category): row.clicks for row in found} == expected
    parquet = tmp_path / "items.parquet"
    spark.createDataFrame(list(CATEGORIES.items()), "item string, category string").write.parquet(
        str(parquet)
    )
    items = read_items(spark, parquet).select("item", "category")
    assert {tuple(row) for row in items.collect()} == set(CATEGORIES.items())
    spark.createDataFrame([("a", 1)], "item string, n int").write.parquet(str(tmp_path / "bad"))
    with pytest.raises(StreamError, match="no column category"):
        read_items(spark, tmp_path / "bad")
    with pytest.raises(StreamError, match="there is no"):
        read_items(spark, tmp_path / "nowhere")


def test_each_member_comes_to_one_task(run: Any, activity: Activity) -> None:
    found = run("views-per-member")
    expected = Counter(row["member_id"] for row in activity.made["page-view"])
    expected[0] += 1  # the closing event
    assert {row.member_id: row.views for row in found} == expected
    assert len(found) == len(expected)


def test_each_item_comes_to_one_task(run: Any, activity: Activity) -> None:
    found = run("impressions-per-item")
    expected = Counter(row["item"] for row in activity.made["impression"])
    of_keys = {row["item"]: row.impressions for row in found if row["item"] != "late"}
    assert of_keys == expected
    assert len(found) == len(expected) + 1  # the closing event


def test_top_items_go_back_to_a_topic_and_a_second_run_adds_nothing(
    run: Any, activity: Activity, broker: tuple[RunningBroker, str]
) -> None:
    for _ in range(2):
        run("top-items", top=2, topic="top-items")
    found = []
    with SimpleConsumer("127.0.0.1", broker[0].port) as client:
        for partition in range(2):
            data = client.fetch("top-items", partition, 0, 1_000_000).data
            found += [json.loads(payload) for payload in message_set.payloads(data)]
    by_window: dict[datetime, Counter[str]] = defaultdict(Counter)
    for row in activity.made["click"]:
        (start,) = windows(row["at"], MINUTE, MINUTE)
        by_window[start][row["item"]] += 1
    expected = [
        (start, rank, item, count)
        for start, items in by_window.items()
        for rank, (item, count) in enumerate(
            sorted(items.items(), key=lambda pair: (-pair[1], pair[0]))[:2], 1
        )
    ]
    assert sorted(
        (datetime.fromisoformat(row["window_start"]), row["rank"], row["item"], row["clicks"])
        for row in found
    ) == sorted(expected)


def test_items_viewed_together_become_events_that_a_second_run_does_not_repeat(
    run: Any, activity: Activity, broker: tuple[RunningBroker, str]
) -> None:
    for _ in range(2):
        run("related-items", top=3)
    found = []
    with SimpleConsumer("127.0.0.1", broker[0].port) as client:
        for partition in range(2):
            data = client.fetch("site-related", partition, 0, 1_000_000).data
            for payload in message_set.payloads(data):
                found.append(codec.decode_as("site-related", payload))
    items: dict[tuple[datetime, int], set[str]] = defaultdict(set)
    for row in activity.made["page-view"]:
        (start,) = windows(row["at"], MINUTE, MINUTE)
        items[start, row["member_id"]].add(row["path"].partition("?")[0])
    pairs: dict[datetime, Counter[tuple[str, str]]] = defaultdict(Counter)
    for (start, _), viewed in items.items():
        if len(viewed) <= 20:
            pairs[start].update(combinations(sorted(viewed - {"/", "/home", "/search"}), 2))
    expected = [
        (int(start.timestamp() * 1000), rank, *pair, members)
        for start, counted in pairs.items()
        for rank, (pair, members) in enumerate(
            sorted(
                (each for each in counted.items() if each[1] > 1),
                key=lambda each: (-each[1], each[0]),
            )[:3],
            1,
        )
    ]
    assert expected
    assert sorted(
        (row["window_start"], row["rank"], row["item"], row["related"], row["members"])
        for row in found
    ) == sorted(expected)
    assert len({row["header"]["guid"] for row in found}) == len(found)


def test_a_process_waits_for_its_topic_says_how_far_it_is_and_ends_with_its_jvm(
    zk_connect: str, tmp_path: Path
) -> None:
    port = held_port()
    settings = {
        "process.name": "views",
        "zk.connect": zk_connect,
        "metrics.port": port,
        "stream.dir": tmp_path / "results",
        "stream.watermark.ms": 0,
        "stream.interval.ms": 500,
    }

    def page(path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, ""

    def rows() -> float:
        (found,) = re.findall(r"^kafka2011_stream_rows_total (\S+)", page("/metrics")[1], re.M)
        return float(found)

    log = tmp_path / "stream.log"
    with start_command("stream views-tumbling", settings, log) as process:
        process.wait_for_event("streaming", 600)
        with start_broker(tmp_path, 11, zk_connect, num_partitions=2):
            made = Activity(7)
            with Producer(zk_connect=zk_connect) as producer:
                for second in range(5):
                    at = START + timedelta(seconds=second)
                    producer.send("page-view", made.payload("page-view", at, 1))
                producer.flush()
            wait_until(lambda: rows() == 5, lambda: f"its rows: {process.log()}", 600)
            assert page("/healthz")[0] == 200
            with registry_at(zk_connect) as registry:
                assert registry.get(paths.process_path("live", "views"))
            for child in children_of(process.pid):
                os.kill(child, signal.SIGKILL)
            assert process.wait(600) == 1
    assert process.events("spark_gone"), process.log()


def test_a_data_frame_becomes_messages(
    spark: Any, broker: tuple[RunningBroker, str], tmp_path: Path
) -> None:
    frame = spark.range(1000).selectExpr(
        "cast(id as string) as value", "cast(id % 7 as string) key"
    )
    options = {"zk.connect": broker[1], "topic": "numbers"}
    frame.write.format("kafka2011").options(**options).mode("append").save()

    def read(topic: str) -> list[int]:
        source = spark.read.format("kafka2011").options(**{**options, "topic": topic})
        rows = despite_slow_starts(lambda: source.load().collect())
        return sorted(int(row.payload) for row in rows)

    assert read("numbers") == list(range(1000))
    # And as a stream, from one topic to another.
    copied = spark.readStream.format("kafka2011").options(**options).load().select("payload")
    writer = copied.writeStream.format("kafka2011").options(**{**options, "topic": "copied"})
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    run_query(writer.trigger(availableNow=True).start)
    assert read("copied") == list(range(1000))
