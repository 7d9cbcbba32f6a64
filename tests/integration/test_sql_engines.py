"""What DuckDB answers in Spark's place is what Spark answers: columns, rows, their order."""

import datetime
import math
import re
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka2011.services.warehouse.shell.results import Answer
from kafka2011.services.warehouse.shell.sql import DUCKDB, SPARK, Warehouse, ask
from tests import ROOT
from tests.support.commands import interrupted

pytestmark = [pytest.mark.integration, pytest.mark.spark]

UTC = datetime.UTC
NOON = datetime.datetime(2015, 5, 17, 12, tzinfo=UTC)
COLUMNS = {
    "guid": pa.binary(),
    "event_time": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
    "path": pa.string(),
    "status": pa.int32(),
    "bytes": pa.int64(),
    "seconds": pa.float64(),
    "ratio": pa.float32(),
    "is_robot": pa.bool_(),
    "price": pa.decimal128(12, 2),
    "exact": pa.decimal128(28, 9),
    "hour": pa.string(),
}
TIMES = [
    NOON,
    NOON + datetime.timedelta(hours=3, microseconds=1),
    NOON - datetime.timedelta(days=40, milliseconds=20),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime.datetime(2016, 2, 29, tzinfo=UTC),
    None,
]
PATHS = ["/", "/Ä ö?x=1", "/a", "/A", "", "/日本", "10", None]
REALS = [0.1, -0.0, 0.0, 1e300, math.nan, math.inf, -2.5, None]


def events(count: int, first: int) -> pa.Table:
    def of(values: list[Any]) -> list[Any]:
        return [values[(first + n * 7) % len(values)] for n in range(count)]

    rows: dict[str, list[Any]] = {
        "guid": [n.to_bytes(2, "big") for n in range(first, first + count)],
        "event_time": of(TIMES),
        "day": [time and time.date() for time in of([*TIMES, TIMES[0]])],
        "path": of(PATHS),
        "status": of([200, 404, -1, 500, None]),
        "bytes": of([0, 1, -7, 2**40, None, 2**53 + 1]),
        "seconds": of(REALS),
        "ratio": of([0.1, 16777216.0, 1.0, -2.5, None]),
        "is_robot": of([True, False, None]),
        "price": of([Decimal("0.00"), Decimal("-1.50"), Decimal("9999999999.99"), None]),
        "exact": of([Decimal("0E-9"), Decimal("9999999999999999999.123456789"), None]),
        "hour": of(["2015-05-17-12", "2015-05-17-13"]),
    }
    return pa.table({name: pa.array(rows[name], kind) for name, kind in COLUMNS.items()})


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables; the first files of one lack columns that came later."""
    directory = tmp_path_factory.mktemp("ware house {a,b}*?")
    early = events(40, 0).drop_columns(["seconds", "ratio", "is_robot"])
    for name, table in (("visit", early), ("visit", events(60, 40)), ("other", events(9, 3))):
        write_deltalake(
            str(directory / name),
            table,
            mode="append",
            partition_by=["hour"],
            schema_mode="merge",
        )
    line = pa.struct([("item", pa.string()), ("count", pa.int16()), ("price", pa.decimal128(9, 2))])
    kinds = {"lines": pa.list_(line), "tags": pa.map_(pa.string(), pa.date32()), "one": line}
    moment = pa.timestamp("us", "UTC")
    times = pa.struct([("at", moment), ("all", pa.list_(moment))])
    first = datetime.datetime(1, 1, 1, tzinfo=UTC)
    values = {"first": [first], "times": [{"at": first, "all": [None, first]}]}
    early_times = pa.table(values, pa.schema([("first", moment), ("times", times)]))
    write_deltalake(str(directory / "early"), early_times)
    write_deltalake(str(directory / "nested"), pa.schema(list(kinds.items())).empty_table())
    return directory


def test_a_program_reads_a_table_as_the_page_says(warehouse: Path) -> None:
    page = (ROOT / "docs" / "warehouse.md").read_text(encoding="utf-8")
    own = page.partition("### From your own Python\n")[2]
    [program] = re.findall(r"```python\n(.*?)```", own.partition("\n## ")[0], re.DOTALL)
    names: dict[str, Any] = {}
    exec(program.replace("var/warehouse/page_view", str(warehouse / "visit")), names)
    assert {len(names["views"]), sum(count for _, count in names["paths"].fetchall())} == {100}


# DuckDB answers all of these itself: a statement that it left to Spark would prove nothing.
STATEMENTS = """
select count(*) from visit;
select count(*), count(path), COUNT(DISTINCT path), count(1) as ones from visit;
select * from visit order by guid;
select * from other where path = '/a' or path is null order by guid;
select guid, PATH, visit.status from visit order by 1 desc limit 7;
select path, count(*) as n from visit group by path order by path;
select path p, count(*) as n from visit group by p order by n desc, p desc;
select path, status, max(event_time), min(day) from visit group by 1, 2 order by 1, 2 desc;
select sum(bytes), min(bytes), max(bytes), mean(status) from visit;
select avg(bytes) from visit where bytes < 1099511627776;
select sum(status), avg(status), sum(distinct status) from visit where bytes >= 0;
select count(distinct seconds) n, count(seconds) m from visit;
select seconds, guid from visit order by seconds desc, guid limit 30 offset 3;
select min(seconds), max(seconds) from visit;
select count(*) n from visit where seconds > 0;
select count(*) n from visit where seconds > 0.1 or seconds <> 0;
select min(ratio), max(ratio), count(distinct ratio) from visit;
select guid, sum(ratio) s, avg(ratio) a from visit group by guid order by guid;
select ratio, guid from visit where ratio >= ratio and ratio <> seconds order by ratio desc, guid;
select count(*) n from visit where status > 200.5 and bytes between -7 and 1;
select count(*) n from visit where status in (200, 404) and not path like '/a%';
select count(*) n from visit where path not in ('/', '10') or path like '%_1';
select count(*) n from visit where path = '10' and path <> 'x';
select count(*) n from visit where is_robot = true and not is_robot = false;
select is_robot, count(*) n from visit group by is_robot order by is_robot nulls last;
select count(*) n from visit where event_time >= '2015-05-17'
    and event_time < '2015-05-17 15:00:00.000001';
select count(*) n from visit where event_time = timestamp '2015-05-17 12:00:00';
select count(*) n from visit where event_time > date '1969-12-31' and day = '2015-05-17';
select count(*) n from visit where day between '2015-01-01' and '2016-02-29';
select hour, count(*) n from visit where hour >= '2015-05-17-12' group by hour order by hour;
select date_trunc('hour', event_time) h, count(*) n from visit group by 1 order by 1;
select date_trunc('week', event_time), max(guid) g from visit group by 1 order by 1;
select date_trunc('month', event_time) m, date_trunc('quarter', event_time) q, date_trunc('year',
    event_time) y, date_trunc('day', event_time) d, date_trunc('minute', event_time) i,
    date_trunc('second', event_time) s from visit order by guid;
select year(event_time), month(event_time), day(event_time), hour(event_time), minute(event_time),
    second(event_time) from visit order by guid;
select cast(event_time as date) d, count(*) n from visit group by cast(event_time as date) order
    by d;
select length(path), substr(path, 2, 3), substring(path, 2) s from visit order by guid;
select bytes + 1 as a, bytes - status as b, bytes * 2 as c, -status as d, bytes / 3 as e, bytes %
    7 as f, seconds / 2 as g from visit where bytes < 100 order by guid;
select sum(case when status >= 400 then 1 else 0 end) errors, count(case when is_robot then 1 end)
    robots from visit;
select coalesce(path, 'none') p, coalesce(bytes, 0) b from visit order by guid;
select distinct path, status from visit order by path, status;
select path, count(*) as n from visit group by path having count(*) > 5 order by n, path;
select path, count(*) filter (where status = 200) as ok from visit group by path order by path;
select v.path, o.bytes from visit v join other o on v.status = o.status and v.bytes = o.bytes
    order by v.guid, o.guid;
select v.guid, o.guid as og from visit v left join other o on v.seconds = o.seconds order by
    v.guid, o.guid;
select count(*) n from visit v, other o where v.path = o.path;
with big as (select path, bytes from visit where bytes > 0) select path, sum(bytes) b from big
    group by path order by path;
select max(n) most from (select path, count(*) as n from visit group by path) counted;
select 7 as seven, 'it''s' as text, event_time from visit where event_time is not null order by
    guid limit 1;
select 1 as one;
select 1, 'x';
select guid, price, exact from visit order by price desc, exact, guid;
select sum(price), min(price), max(exact), sum(exact), count(distinct price) as n from visit;
select price, sum(exact) as e from visit group by price having sum(price) > -40.5 order by price;
select sum(s) as z from (select path, sum(price) as s from visit group by path) parts;
select guid from visit where price > -1.49 and price < bytes or price in (0, -1.5, exact)
    order by guid;
"""


def test_duckdb_answers_as_spark_does(spark: Any, warehouse: Path) -> None:
    known = Warehouse(warehouse)

    def answered(statement: str, engine: str) -> tuple[str, list[str], list[str]]:
        with ExitStack() as stack:
            found: Answer = ask(
                stack,
                known,
                known.named_in(statement),
                statement,
                engine=engine,
                start_spark=spark.newSession,
            )
            rows = [str([_plain(value) for value in row]) for row in found.rows]
            stack.pop_all()  # the session is the tests'
            return found.engine, list(found.columns), rows

    wrong = []
    for statement in STATEMENTS.strip().removesuffix(";").split(";\n"):
        engine, *fast = answered(statement, "auto")
        _, *slow = answered(statement, SPARK)
        if engine != "DuckDB" or fast != slow:
            wrong.append((statement, engine, *(pair for pair in zip(fast, slow, strict=True))))
    assert not wrong, "\n".join(map(str, wrong))
    # What DuckDB would count otherwise: to it 0.1 is a float of 32 bits beside one.
    engine, _, [count] = answered("select count(*) from visit where ratio = 0.1", "auto")
    assert (engine[:5], count) == ("Spark", "[0]")
    # DuckDB's own SQL, where that is asked for.
    assert answered("from visit select count(*) as n", DUCKDB) == ("DuckDB", ["n"], ["[100]"])
    # The first moment that a table can have is the "no time" of several languages.
    both = "select first, times, first as again from early"
    shown = "[datetime.datetime(1, 1, 1, 0, 0), {'at': datetime.datetime(1, 1, 1, 0, 0), 'all': "
    shown += "[None, datetime.datetime(1, 1, 1, 0, 0)]}, datetime.datetime(1, 1, 1, 0, 0)]"
    assert answered(both, SPARK)[1:] == (["first", "times", "again"], [shown])
    # Nested types are described without an engine as Spark describes them.
    described = answered("describe nested", "auto")
    assert described[1:] == answered("describe nested", SPARK)[1:]


def _plain(value: Any) -> Any:
    """A value as it is printed, with one type for whole numbers and for bytes."""
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.mark.parametrize("after_s", [2, 20], ids=["at the start of the JVM", "in the query"])
def test_ctrl_c_ends_a_long_query_of_spark(tmp_path: Path, after_s: int) -> None:
    words = ["sql", "--warehouse", tmp_path, "--engine", SPARK]
    words.append("select count(*) from range(100000000000000)")
    said = "kafka2011: Spark is starting (--engine spark)\n"
    assert interrupted(words, after_s) == (130, said)
