"""Orders of a nested schema that changes while they are sent, with messages among them that are no
events: message `number` and the row, or the quarantine, that it must come to.

Each schema is registered when its first order is made. What the table must have is known here
without any code of the load; Polars and DuckDB read it.
"""

import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import fastavro
import polars
from deltalake import DeltaTable

from kafka2011.events.topic_codec import id_prefix

TOPIC = "shop-orders"
SUBJECT = f"{TOPIC}-value"
T0 = 1_300_000_000_000  # ms
HOUR_MS = 3_600_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNKNOWN_ID = 2**31 - 1
POISON_EVERY, ODD_EVERY = 101, 103
POISON_KINDS = 6

Json = Any
Register = Callable[[str, str], int]  # (subject, schema) -> id


def record(name: str, *fields: Json) -> Json:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Json, **more: Json) -> Json:
    return {"name": name, "type": kind, **more}


HEADER = field(
    "header",
    record(
        "Header",
        field("guid", {"type": "fixed", "name": "Guid", "size": 16}),
        field("time", "long"),
        field("server", "string"),
        field("service", "string"),
    ),
)
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
PLACED = {"type": "long", "logicalType": "timestamp-millis"}


def schema_text(version: int) -> str:
    """Versions 0 to 2 may follow each other; 3 has another type of `id`."""
    line = [field("sku", "string"), field("price", PRICE)]
    address = record("Address", field("city", "string"), field("zip", ["null", "string"]))
    customer = [field("name", "string"), field("address", address)]
    states = ["open", "sent"]
    more = []
    if version >= 1:
        line.append(field("discount", "double", default=0.0))
        customer.append(field("email", ["null", "string"], default=None))
        states.append("returned")
        more.append(field("note", ["null", "string"], default=None))
    if version >= 2:
        card, transfer = (
            record("Card", field("last", "int")),
            record("Bank", field("iban", "string")),
        )
        more.append(field("payment", ["null", card, transfer], default=None))
    item_count = field("pieces", "long" if version >= 2 else "int")
    status = {"type": "enum", "name": "Status", "symbols": states, "default": "open"}
    found = record(
        "Order",
        HEADER,
        field("id", "string" if version == 3 else "long"),
        field("customer", record("Customer", *customer)),
        field("lines", {"type": "array", "items": record("Line", *line)}),
        field("labels", {"type": "map", "values": "int"}),
        field("status", status),
        field("placed", PLACED),
        item_count,
        *more,
    )
    return json.dumps(found)


class ShopOrders:
    """`count` messages by number; the later ones have the later versions, mixed with earlier."""

    def __init__(self, register: Register, count: int) -> None:
        self._register = register
        self.count = count
        self._schemas: dict[int, Json] = {}
        self._ids: dict[int | str, int] = {}

    def message(self, number: int) -> bytes:
        kind = self._poison(number)
        if kind is None:
            return self._event(number, self.version(number))
        match kind:
            case 0:
                return b"poison %d" % number
            case 1:
                return id_prefix(UNKNOWN_ID) + b"%d" % number
            case 2:
                return id_prefix(self._id("another", '"string"')) + b"%d" % number
            case 3:
                return self._event(number, 0)[:30]
            case 4:
                return self._event(number, 0, time_ms=-1)
            case _:
                return self._event(number, 0, time_ms=10**16)  # in the year 318,000

    def is_row(self, number: int) -> bool:
        return self._poison(number) is None and self.version(number) < 3

    def version(self, number: int) -> int:
        phase = 4 * number // self.count
        if phase >= 2 and number % ODD_EVERY == 0:
            return 3
        return min(2, Random(number).randrange(phase + 1))

    def row(self, number: int) -> dict[str, Any]:
        """The row's own columns as Polars has them; a column that the version lacks is null."""
        event = self._record(number, self.version(number))
        header, pieces = event.pop("header"), event.pop("pieces")
        is_long = self.version(number) >= 2
        lines = [{"discount": None, **line} for line in event["lines"]]
        payment = event.get("payment")
        members = None
        if payment is not None:
            is_card = "last" in payment
            members = {"Card": payment if is_card else None}
            members["Bank"] = None if is_card else payment
        return {
            "note": None,
            **event,
            "lines": lines,
            "payment": members,
            "customer": {"email": None, **event["customer"]},
            "guid": header["guid"],
            "header_time": EPOCH + timedelta(milliseconds=header["time"]),
            "server": header["server"],
            "service": header["service"],
            "pieces": None if is_long else pieces,
            "pieces_long": pieces if is_long else None,
        }

    def _poison(self, number: int) -> int | None:
        turn, at = divmod(number, POISON_EVERY)
        return turn % POISON_KINDS if at == 7 else None

    def _id(self, name: int | str, text: str) -> int:
        if name not in self._ids:
            subject = SUBJECT if isinstance(name, int) else f"{name}-value"
            self._ids[name] = self._register(subject, text)
        return self._ids[name]

    def _event(self, number: int, version: int, time_ms: int | None = None) -> bytes:
        schema = self._schemas.get(version)
        if schema is None:
            schema = self._schemas[version] = fastavro.parse_schema(
                json.loads(schema_text(version))
            )
        body = io.BytesIO()
        event = self._record(number, version)
        if time_ms is not None:
            event["header"]["time"] = time_ms
        if version == 3:
            event["id"] = str(number)
        fastavro.schemaless_writer(body, schema, event)
        return id_prefix(self._id(version, schema_text(version))) + body.getvalue()

    def _record(self, number: int, version: int) -> dict[str, Any]:
        at_ms = T0 + number * 3 * HOUR_MS // self.count
        line: dict[str, Any] = {"sku": f"sku-{number % 97}", "price": Decimal(number % 10**6) / 100}
        customer = {
            "name": f"Zoë {number % 1009}",
            "address": {"city": "Köln", "zip": None if number % 5 == 0 else f"{number % 99999:05}"},
        }
        event: dict[str, Any] = {}
        if version >= 1:
            line["discount"] = number % 8 / 8
            customer["email"] = None if number % 3 else f"{number}@example.com"
            event["note"] = None if number % 4 else f"note {number}"
        if version >= 2:
            payments = [None, {"last": number % 10_000}, {"iban": f"DE{number}"}]
            event["payment"] = payments[number % 3]
        return {
            "header": {
                "guid": number.to_bytes(16, "big"),
                "time": at_ms,
                "server": f"shop-{number % 3}",
                "service": "shop",
            },
            "id": number,
            "customer": customer,
            "lines": [line] * (number % 4),
            "labels": {f"label-{number % 7}": number} if number % 2 else {},
            "status": ["open", "sent", "returned"][number % (3 if version else 2)],
            "placed": EPOCH + timedelta(milliseconds=at_ms),
            "pieces": number + (2**40 if version >= 2 else 0),
            **event,
        }


def differences(orders: ShopOrders, rows: Path, quarantine: Path) -> list[str]:
    """What the two tables have otherwise than they must; empty when every message is one row or one
    message in quarantine, exactly."""
    found: list[str] = []
    expected = [number for number in range(orders.count) if orders.is_row(number)]
    frame = polars.read_delta(str(rows)).sort("id")
    if frame["id"].to_list() != expected:
        found.append(f"{frame.height} rows of {frame['id'].n_unique()} orders, not {len(expected)}")
    for part in frame.iter_slices(10_000):
        for row in part.to_dicts():
            wanted = orders.row(row["id"])
            told = {name: row[name] for name in wanted}
            odd = [name for name in wanted if told[name] != wanted[name]]
            if odd:
                name = odd[0]
                found.append(f"order {row['id']}: {name} is {told[name]}, not {wanted[name]}")
                return found
    aside = polars.read_delta(str(quarantine))
    wanted_aside = sorted(orders.message(n) for n in range(orders.count) if not orders.is_row(n))
    if sorted(aside["payload"].to_list()) != wanted_aside:
        found.append(f"{aside.height} messages in quarantine, not {len(wanted_aside)}")
    if not all(aside["reason"].to_list()):
        found.append("a message in quarantine has no reason")
    return found + _by_duckdb(orders, expected, rows)


def _by_duckdb(orders: ShopOrders, expected: Sequence[int], rows: Path) -> list[str]:
    """The same of some sums over what is nested, by another reader."""
    shop = DeltaTable(str(rows)).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    told = duckdb.sql(
        "select count(*), count(distinct guid), sum(len(lines)), count(customer.email), "
        "sum(coalesce(pieces, pieces_long)) from shop"
    ).fetchall()
    wanted_rows = [orders.row(number) for number in expected]
    wanted = (
        len(expected),
        len(expected),
        sum(len(row["lines"]) for row in wanted_rows),
        sum(row["customer"]["email"] is not None for row in wanted_rows),
        sum(row["pieces_long"] or row["pieces"] or 0 for row in wanted_rows),
    )
    return [] if told == [wanted] else [f"DuckDB: {told} instead of {wanted}"]
