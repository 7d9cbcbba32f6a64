"""Whole loads of a topic whose schema only the registry has, and changes while it is loaded."""

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from deltalake import DeltaTable

from kafka2011.events import codec_source
from kafka2011.events.forms import FORMS_DEFAULT
from kafka2011.events.topic_codec import id_prefix
from kafka2011.runtime.failpoints import FailpointError
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.load import replay
from kafka2011.services.warehouse.load.job import LoadOutcome
from kafka2011.services.warehouse.load.replay import Replayed
from kafka2011.services.warehouse.shell.duckdb_engine import DuckDb
from tests.support import shop_orders
from tests.support.registries import URL, DirectRegistry
from tests.support.shop_orders import ShopOrders
from tests.unit.services.warehouse.load.deployment import SECOND, Deployment, patch_failpoints

TOPIC = "order"
LINE = {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}
FIRST_FIELDS = [
    {"name": "id", "type": "int"},
    {"name": "lines", "type": {"type": "array", "items": LINE}},
]
NEW_LINE = {**LINE, "fields": [*LINE["fields"], {"name": "n", "type": "int", "default": 1}]}
SECOND_FIELDS = [
    {"name": "id", "type": "int"},
    {"name": "lines", "type": {"type": "array", "items": NEW_LINE}},
    {"name": "note", "type": ["null", "string"], "default": None},
]
ODD_FIELDS = [{"name": "id", "type": {"type": "array", "items": "int"}}]


class Orders:
    """Orders by number, in three versions of their schema, of which the last fits no column."""

    def __init__(self, registry: DirectRegistry, deployment: Deployment) -> None:
        self.registry = registry
        self.deployment = deployment
        registry.ask("PUT", "/config/order-value", b'{"compatibility":"NONE"}')

    def first(self, number: int) -> bytes:
        return self._event(FIRST_FIELDS, {"id": number, "lines": [{"sku": f"s{number}"}]})

    def second(self, number: int) -> bytes:
        line = {"sku": f"s{number}", "n": 2}
        return self._event(SECOND_FIELDS, {"id": number, "lines": [line], "note": "x"})

    def odd(self, number: int) -> bytes:
        return self._event(ODD_FIELDS, {"id": [number]})

    def _event(self, fields: list[dict[str, Any]], record: dict[str, Any]) -> bytes:
        schema = {"type": "record", "name": "Order", "fields": fields}
        number = self.registry.client().id_of("order-value", json.dumps(schema))
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), record)
        return id_prefix(number) + body.getvalue()

    def load(self) -> LoadOutcome:
        return self.deployment.load(event_forms=FORMS_DEFAULT, schema_registry_url=URL)

    def replay(self) -> Replayed:
        settings = {"event_forms": FORMS_DEFAULT, "schema_registry_url": URL}
        config = WarehouseConfig(warehouse_dir=self.deployment.warehouse, **settings)
        return replay.replay(config, TOPIC)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as delta-rs reads them, by number."""
        table = DeltaTable(str(self.deployment.warehouse / TOPIC)).to_pyarrow_table()
        return sorted(table.to_pylist(), key=lambda row: row["id"])

    def duckdb(self, statement: str) -> list[tuple[Any, ...]]:
        table = WarehouseTable.open(self.deployment.warehouse / TOPIC)
        assert table is not None
        with DuckDb({"orders": table}) as connection:
            return list(connection.answer(statement).rows)

    def reasons(self) -> list[str]:
        found = self.deployment.select("reason", f"quarantine-tables/{TOPIC}")
        return [reason for (reason,) in found]


@pytest.fixture
def orders(registry: DirectRegistry, deployment: Deployment) -> Iterator[Orders]:
    return Orders(registry, deployment)


def test_a_version_that_comes_later_adds_its_columns(orders: Orders) -> None:
    deployment = orders.deployment
    deployment.add_partition(TOPIC, orders.first(0), orders.first(1))
    assert orders.load().rows == {TOPIC: 2}
    deployment.add_partition(TOPIC, orders.second(2), orders.first(3), b"poison")
    deployment.add_partition(TOPIC, orders.odd(4), orders.second(5), source=SECOND)
    outcome = orders.load()
    assert (outcome.rows, outcome.quarantined, outcome.failures) == ({TOPIC: 3}, {TOPIC: 2}, [])
    rows = orders.rows()
    assert [row["id"] for row in rows] == [0, 1, 2, 3, 5]
    assert [row["note"] for row in rows] == [None, None, "x", None, "x"]
    assert [row["lines"] for row in rows[1:3]] == [
        [{"sku": "s1", "n": None}],
        [{"sku": "s2", "n": 2}],
    ]
    statement = "select id, lines[1].n, note from orders order by id"
    assert orders.duckdb(statement) == [
        *((0, None, None), (1, None, None), (2, 2, "x"), (3, None, None), (5, 2, "x")),
    ]
    assert sorted(orders.reasons())[0].startswith("a Order: column id is int32 in the table")


def test_tasks_that_meet_schemas_which_do_not_fit_are_loaded_one_after_the_other(
    orders: Orders,
) -> None:
    orders.deployment.add_partition(TOPIC, orders.first(0))
    orders.deployment.add_partition(TOPIC, orders.odd(1), source=SECOND)
    failures = []
    for _ in range(2):
        failures += orders.load().failures
    assert len(failures) <= 1
    assert len(orders.rows()) + len(orders.reasons()) == 2


@pytest.mark.parametrize("name", ["after_files_written", "after_quarantine", "after_commit"])
def test_killed_while_a_version_comes_and_another_is_mended_nothing_is_lost_or_repeated(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A message in the quarantine stays there, although it can be read when it is read again."""
    deployment = orders.deployment
    deployment.add_partition(TOPIC, orders.first(0))
    orders.load()
    unknown = id_prefix(int.from_bytes(orders.second(7)[1:5], "big") + 1) + b"\2"
    deployment.add_partition(TOPIC, orders.second(1), unknown, orders.first(2))

    def failpoint(reached: str) -> None:
        if reached == name:
            raise FailpointError(name)

    with monkeypatch.context() as patched:
        patch_failpoints(patched, failpoint)
        with pytest.raises(FailpointError):
            orders.load()
    late = [{"name": "id", "type": "int"}]
    assert orders._event(late, {"id": 1})[:5] == unknown[:5]
    deployment.add_partition(TOPIC, orders.second(3))
    codec_source._codec.cache_clear()  # new worker processes
    assert orders.load().failures == []
    numbers = [row["id"] for row in orders.rows()]
    in_quarantine = name != "after_files_written"
    assert numbers == ([0, 1, 2, 3] if in_quarantine else [0, 1, 1, 2, 3])
    assert len(orders.reasons()) == int(in_quarantine)


@pytest.mark.parametrize("killed", [False, True])
def test_what_can_be_read_now_is_replayed_from_the_quarantine_once(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    deployment = orders.deployment
    first = orders.first(9)
    later = id_prefix(int.from_bytes(orders.second(0)[1:5], "big") + 1)
    events = [later + bytes([2 * number]) for number in range(5)]
    deployment.add_partition(TOPIC, first, *events[:3], b"poison")
    deployment.add_partition(TOPIC, *events[3:], source=SECOND)
    assert orders.load().quarantined == {TOPIC: 6}
    codec_source._codec.cache_clear()
    assert orders.replay() == Replayed(0, 6, "the registry has no schema with id 4")
    fields = [{"name": "id", "type": "int"}, {"name": "none", "type": "null", "default": None}]
    assert orders._event(fields, {"id": 0, "none": None}) == events[0]
    monkeypatch.setattr(replay, "PIECE_ROWS_MAX", 2)
    if killed:

        def failpoint(_: str) -> None:
            raise FailpointError("killed")

        with monkeypatch.context() as patched, pytest.raises(FailpointError):
            patched.setattr(replay, "failpoint", failpoint)
            orders.replay()
    poison = (
        "the payload does not start with byte 0 and an id of 4 bytes, but topic order has the form "
        "id (event.forms)"
    )
    assert orders.replay() == Replayed(5, 1, poison)
    assert [row["id"] for row in orders.rows()] == [0, 1, 2, 3, 4, 9]
    assert orders.deployment.quarantined(TOPIC) == [b"poison"]
    assert orders.replay() == Replayed(0, 1, poison)
    (info,) = deployment.commits(TOPIC)
    assert info.rows == 1
    # Loads go on behind it.
    deployment.add_partition(TOPIC, orders.second(10), b"more poison")
    assert orders.load().rows == {TOPIC: 1}
    assert len(orders.rows()) == 7
    assert len(orders.deployment.quarantined(TOPIC)) == 2


def test_orders_of_three_versions_with_poison_are_all_there_whatever_dies(
    registry: DirectRegistry, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small form of tests/large/test_large_orders.py: a load dies at each of its steps."""
    registry.ask("PUT", f"/config/{shop_orders.SUBJECT}", b'{"compatibility":"NONE"}')
    orders = ShopOrders(registry.client().id_of, 1000)
    messages = [orders.message(number) for number in range(orders.count)]
    steps = ["after_files_written", "after_quarantine", "after_commit", ""]
    for part, step in enumerate(steps):

        def failpoint(reached: str, step: str = step) -> None:
            if reached == step:
                raise FailpointError(step)

        sent = messages[len(messages) * part // 4 : len(messages) * (part + 1) // 4]
        deployment.add_partition(shop_orders.TOPIC, *sent[::2])
        deployment.add_partition(shop_orders.TOPIC, *sent[1::2], source=SECOND)
        with monkeypatch.context() as patched, contextlib.suppress(FailpointError):
            patch_failpoints(patched, failpoint)
            assert (
                deployment.load(event_forms=FORMS_DEFAULT, schema_registry_url=URL).failures == []
            )
    table = shop_orders.TOPIC.replace("-", "_")
    places = deployment.warehouse / table, deployment.warehouse / "quarantine-tables" / table
    assert shop_orders.differences(orders, *places) == []
