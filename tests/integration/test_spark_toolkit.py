"""The examples of docs/streams.md, as they stand there but for the addresses, over topics of a
user's own; their results against figures counted here in plain Python."""

import io
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest

from kafka2011 import streams
from kafka2011.events.registry_client import RegistryClient
from kafka2011.events.schemas import schema_text
from kafka2011.events.topic_codec import id_prefix
from kafka2011.producer import Producer
from tests import ROOT
from tests.support.brokers import start_broker
from tests.support.commands import held_port, start_command
from tests.support.waiting import run_query, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark]

START = datetime(2026, 5, 17, 10, 0, 20, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FIELDS = {"orders": {"item": "string"}, "payments": {"amount": "int"}}


class Order(NamedTuple):
    at: datetime
    customer: int
    value: Any  # item, or amount


class Shop:
    """Writes orders and payments by a schema of its own; `made` has them, each once."""

    def __init__(self, registry_url: str) -> None:
        self.made: dict[str, list[Order]] = defaultdict(list)
        self.sent: Counter[int] = Counter()  # orders by customer, with the repeats
        self.numbers = iter(range(10_000))
        self.schemas, self.prefixes = {}, {}
        client = RegistryClient(registry_url)
        header, event_time = json.loads(schema_text("click"))["fields"][:2]
        for topic, own in FIELDS.items():
            fields = [header, event_time, {"name": "customer", "type": "long"}]
            fields += [{"name": name, "type": kind} for name, kind in own.items()]
            schema = {"type": "record", "name": topic.title(), "fields": fields}
            self.prefixes[topic] = id_prefix(client.id_of(f"{topic}-value", json.dumps(schema)))
            self.schemas[topic] = fastavro.parse_schema(schema)

    def payload(self, topic: str, order: Order) -> bytes:
        guid = next(self.numbers).to_bytes(16, "big")
        header = {"guid": guid, "time": int(order.at.timestamp() * 1000), "server": "s"}
        header["service"] = "shop"
        [own] = FIELDS[topic]
        event = {"header": header, "event_time": order.at, "customer": order.customer}
        found = io.BytesIO(self.prefixes[topic])
        found.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(found, self.schemas[topic], {**event, own: order.value})
        return found.getvalue()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, zookeeper: Any) -> Iterator[tuple[Shop, str]]:
    """What it made, and the page's text with the addresses of here."""
    root = tmp_path_factory.mktemp("toolkit")
    zk_connect = f"{zookeeper.host}:{zookeeper.port}/toolkit"
    port = held_port()
    settings = {"registry.port": port, "data.dir": root / "registry"}
    with (
        start_command("registry", settings, root / "registry.log") as registry,
        start_broker(root, 4, zk_connect, num_partitions=2) as broker,
        Producer(zk_connect=zk_connect) as producer,
    ):
        registry.wait_for_event("serving")
        url = f"http://127.0.0.1:{port}"
        made = Shop(url)
        late = START + timedelta(hours=3)  # every window before it is closed
        for topic, customer, value in (("orders", 0, "last"), ("payments", -1, 0)):
            payload = made.payload(topic, Order(late, customer, value))
            # The first message announces the topic; a key has its place from then on.
            producer.send_set(topic, b"", broker_id=4, partition=0)
            wait_until(lambda t=topic: producer.target_of(t, 1).partition == 1, "two partitions")
            producer.send(topic, payload, customer)
        made.sent[0] += 1
        rng = random.Random(5)
        for _ in range(250):
            topic = rng.choice(["orders", "orders", "payments"])
            value = rng.choice(["book", "pen", "lamp"]) if topic == "orders" else rng.randrange(9)
            at = START + timedelta(seconds=rng.randrange(600))
            order = Order(at, rng.randrange(1, 9), value)
            made.made[topic].append(order)
            copies = [made.payload(topic, order)] * rng.choice([1, 1, 2])
            producer.send(topic, copies, order.customer)
            if topic == "orders":
                made.sent[order.customer] += len(copies)
        producer.flush()
        page = (ROOT / "docs/streams.md").read_text(encoding="utf-8")
        page = page.replace("127.0.0.1:2181", zk_connect).replace("http://127.0.0.1:8081", url)
        yield made, page
        assert broker.stop() == 0


@pytest.fixture
def tables(
    spark: Any, shop: tuple[Shop, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The names that the examples made, each run to its end."""
    monkeypatch.chdir(tmp_path)
    shuffles = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    here: dict[str, Any] = {"spark": spark, "root": tmp_path}
    examples = re.findall(r"```python\n(.*?)```", shop[1], re.DOTALL)
    exec(examples[0], here)
    for example in examples[1:]:
        assert len([line for line in example.splitlines() if line]) <= 10

        def start(program: str = example.replace('parquet(f"', f'parquet(f"{tmp_path}/')) -> Any:
            exec(program, here)
            return here["query"]

        run_query(start)
    yield here
    spark.conf.set("spark.sql.shuffle.partitions", shuffles)
    for name in ("once", "per_item", "visits", "paid_orders", "shelved"):
        spark.catalog.dropTempView(name)


def utc(moment: datetime) -> datetime:
    """Spark hands out times of the session's zone, UTC, without one."""
    return moment.replace(tzinfo=UTC)


def minute_of(at: datetime) -> datetime:
    return at.replace(second=0)


def test_the_examples_give_what_the_page_says(
    spark: Any, shop: tuple[Shop, str], tables: dict[str, Any]
) -> None:
    orders, payments = shop[0].made["orders"], shop[0].made["payments"]
    rows = {name: spark.table(name).collect() for name in ("once", "per_item", "visits")}
    rows |= {name: spark.table(name).collect() for name in ("paid_orders", "shelved")}
    last = [("last", 0)]
    assert Counter((r.item, r.customer) for r in rows["once"]) == Counter(
        [(one.value, one.customer) for one in orders] + last
    )
    per_item = Counter((minute_of(one.at), one.value) for one in orders)
    assert {(utc(r.window_start), r.item): r["count"] for r in rows["per_item"]} == per_item
    visits = []
    for customer in range(1, 9):
        times = sorted(one.at for one in orders if one.customer == customer)
        for before, at in zip([None, *times], times, strict=False):
            if before is None or at - before >= 2 * MINUTE:
                visits.append([customer, at, 0])
            visits[-1][2] += 1
    found = [[r.customer, utc(r.session_start), r.orders] for r in rows["visits"]]
    assert sorted(found) == visits
    assert Counter((r.ordered_at, r.paid_at, r.customer) for r in rows["paid_orders"]) == Counter(
        (one.at.replace(tzinfo=None), other.at.replace(tzinfo=None), one.customer)
        for one in orders
        for other in payments
        if one.customer == other.customer and timedelta() <= other.at - one.at <= 10 * MINUTE
    )
    shelves = {"book": "media", "pen": "office"}
    assert {(r.item, r.shelf) for r in rows["shelved"]} == {
        (item, shelves.get(item, "unknown")) for item in ("book", "pen", "lamp", "last")
    }
    top = spark.read.parquet(f"{tables['root']}/top").collect()
    by_window: dict[datetime, Counter[str]] = defaultdict(Counter)
    for (start, item), count in per_item.items():
        by_window[start][item] = count
    assert sorted((utc(r.window_start), r.rank, r.item, r["count"]) for r in top) == [
        (start, rank, item, count)
        for start, items in sorted(by_window.items())
        for rank, (item, count) in enumerate(
            sorted(items.items(), key=lambda pair: (-pair[1], pair[0]))[:2], 1
        )
    ]

    # Counts by key: repeats count, and each customer is in one partition, of which there are two.
    counts = spark.read.parquet(f"{tables['root']}/counts").collect()
    assert sorted((r.customer, r["count"]) for r in counts) == sorted(shop[0].sent.items())
    placement = tables["placement"]
    assert len(placement.partitions) == 2
    moved = streams.Placement("orders", placement.partitions[::-1])
    at = tables["at"]
    options = {"topic": "orders", "decode": "true", "zk.connect": at["zk_connect"]}
    options["schema.registry.url"] = at["registry_url"]
    stored = spark.read.format("kafka2011").options(**options).load()
    found: list[Any] = []
    counted = streams.counts_in_place(stored, "customer", moved)
    streams.merged("customer", lambda rows, _: found.extend(rows.collect()))(counted, 0)
    assert sorted(tuple(row) for row in found) == sorted(shop[0].sent.items())
    with pytest.raises(streams.Misplaced, match="is not in the partition that its key has now"):
        streams.merged("customer", lambda _rows, _number: None, fails=True)(counted, 0)
