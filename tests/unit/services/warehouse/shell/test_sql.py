"""One statement: the engine that answers it, its forms, and the columns it reads of a topic."""

import csv
import datetime
import decimal
import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import Row
from pyspark.sql.types import StructType

from kafka2011.consumer.spark.rows import MESSAGE_SCHEMA
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import quarantine_description, rows_description
from kafka2011.services.warehouse.shell import spark_engine
from kafka2011.services.warehouse.shell.results import Answer, SqlError, write_answer
from kafka2011.services.warehouse.shell.spark_engine import answer as sparks_answer
from kafka2011.services.warehouse.shell.spark_engine import columns_named
from kafka2011.services.warehouse.shell.sql import Warehouse, ask
from tests.support import commands

ROW = {
    "text": 'a "b", \x1b[31mä',
    "at": datetime.datetime(2015, 5, 17, 10, 5, 3),
    "raw": bytearray(b"\x01\xff"),
    "amount": decimal.Decimal("1.50"),
    "parts": [1, "x"],
    "yes": True,
}
NULLS = dict.fromkeys(ROW)


def written(form: str, *rows: dict[str, Any]) -> str:
    out = io.StringIO()
    answer = Answer(list(ROW), iter([tuple(row.values()) for row in rows]), "a test")
    assert write_answer(answer, form, out) == len(rows)
    return out.getvalue()


def test_csv_has_the_columns_and_every_value_as_text() -> None:
    assert list(csv.reader(io.StringIO(written("csv", ROW, NULLS)))) == [
        list(ROW),
        [ROW["text"], "2015-05-17 10:05:03", "01ff", "1.50", '[1, "x"]', "true"],
        [""] * 6,
    ]


def test_json_is_an_object_a_row() -> None:
    shown = {**ROW, "at": "2015-05-17 10:05:03", "raw": "01ff", "amount": 1.5}
    assert json.loads(written("json", ROW, NULLS)) == [shown, NULLS]
    assert json.loads(written("json")) == []


def test_json_is_refused_where_two_columns_have_one_name() -> None:
    out = io.StringIO()
    with pytest.raises(SqlError, match="two columns are called path: give one another name"):
        write_answer(Answer(["path", "n", "path"], iter([("/a", 1, "/b")]), "a test"), "json", out)
    assert out.getvalue() == ""


class Session:
    """A Spark session whose one answer has these rows; an exception is raised in its place."""

    columns = ("device", "samples", "n")
    schema = StructType()  # no times

    def __init__(self, *rows: Any) -> None:
        self._rows = rows

    def sql(self, _: str) -> "Session":
        return self

    def toLocalIterator(self) -> Iterator[Any]:
        for row in self._rows:
            if isinstance(row, Exception):
                raise row
            yield row


def test_what_spark_answers_has_the_names_inside_of_structs() -> None:
    place, sample = Row(hall=2), Row(celsius=20.5)
    device = Row(serial="SN-1", place=place)
    found = sparks_answer(Session(Row(device, [sample], {"a": sample})), "", {})
    assert list(found.rows) == [
        (
            {"serial": "SN-1", "place": {"hall": 2}},
            [{"celsius": 20.5}],
            {"a": {"celsius": 20.5}},
        )
    ]


def test_a_plan_is_shown_line_by_line() -> None:
    plan = "== Physical Plan ==\n*(1) Scan\n"
    found = sparks_answer(Session((plan,)), " EXPLAIN select 1", {})
    assert list(found.rows) == [("== Physical Plan ==",), ("*(1) Scan",)]


class JavaError(Py4JJavaError):  # type: ignore[misc]
    """As py4j shows an exception of Java, without a JVM to ask for its text."""

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        return "An error occurred while calling o88.getResult.\n: java.io.X: too slow\n\tat Y"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (JavaError(), "Spark: java.io.X: too slow"),
        (ConnectionResetError("gone"), "Spark's JVM ended: gone"),
    ],
)
def test_an_exception_of_java_is_not_called_the_end_of_the_jvm(error: Exception, said: str) -> None:
    found = sparks_answer(Session(error), "", {})
    with pytest.raises(SqlError) as raised:
        list(found.rows)
    assert str(raised.value) == said


def test_a_time_inside_of_a_struct_is_shown_alike_by_both_engines() -> None:
    """DuckDB's has a time zone there, Spark's has none."""
    naive = datetime.datetime(2015, 5, 17, 10, 5, 3)
    zones = (None, datetime.UTC, datetime.timezone(datetime.timedelta(hours=2)))
    times = [
        naive.replace(tzinfo=datetime.UTC).astimezone(zone) if zone else naive for zone in zones
    ]
    for form in ("csv", "json", "table"):
        texts = {written(form, ROW | {"parts": {"at": time}}) for time in times}
        assert len(texts) == 1
        assert "2015-05-17 10:05:03" in texts.pop()


def test_keys_of_a_map_may_be_of_any_type() -> None:
    keys = {datetime.date(2015, 5, 17): 1, b"\x01\xff": 2, None: 3, (1, 2): 4, 5: 6, True: 7}
    shown = {"2015-05-17": 1, "01ff": 2, "null": 3, "[1, 2]": 4, "5": 6, "true": 7}
    row = {**ROW, "parts": [keys, {"inside": keys}]}
    assert json.loads(written("json", row))[0]["parts"] == [shown, {"inside": shown}]
    [_, cells] = csv.reader(io.StringIO(written("csv", row)))
    assert json.loads(cells[list(ROW).index("parts")]) == [shown, {"inside": shown}]


def test_a_table_is_safe_for_a_terminal() -> None:
    text = written("table", ROW)
    assert r"\x1b[31mä" in text
    assert "\x1b" not in text
    assert "2015-05-17 10:05:03" in text


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("select count(*) from raw_t", ["broker"]),
        ("SELECT COUNT( * ) FROM raw_t WHERE Partition = 1", ["partition"]),
        ("select max(offset), topic from raw_t group by topic", ["topic", "offset"]),
        ("select * from raw_t", MESSAGE_SCHEMA.names),
        ("select raw_t.*, count(*) from raw_t", MESSAGE_SCHEMA.names),
        ("select 2 * 3 from raw_t", MESSAGE_SCHEMA.names),
        ("from raw_a natural join raw_b select count(*)", MESSAGE_SCHEMA.names),
        ("select payload from raw_t union select payload from raw_u", MESSAGE_SCHEMA.names),
        ("table raw_t", MESSAGE_SCHEMA.names),
        ("from raw_t |> limit 5", MESSAGE_SCHEMA.names),
        ("with t as (from raw_t) table t", MESSAGE_SCHEMA.names),
        (" FROM raw_t", MESSAGE_SCHEMA.names),
    ],
)
def test_only_columns_that_a_statement_can_need_are_read(
    statement: str, columns: list[str]
) -> None:
    assert columns_named(statement) == columns


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("select `user-id`, count(*) from sales group by 1", ["user-id"]),
        ("select s.`@Timestamp` from sales s where `$price` > 1", ["@timestamp", "$price"]),
        ("select user, id from sales", ["hour"]),
        ("select `İd`, größe from sales", ["İd", "größe"]),
    ],
)
def test_a_column_whose_name_is_no_word_is_read(statement: str, columns: list[str]) -> None:
    every = ["user-id", "@timestamp", "$price", "İd", "größe", "hour"]
    assert columns_named(statement, every, "hour") == columns


class SparkAsked(Exception):
    """In place of a session: the statement was not DuckDB's."""


def no_spark() -> object:
    raise SparkAsked


def answered(
    directory: Path,
    statement: str,
    engine: str = "auto",
    notices: list[str] | None = None,
    raw: tuple[WarehouseConfig, str] | None = None,
) -> tuple[str, list[Any]]:
    """The engine, the rows."""
    said = [] if notices is None else notices
    warehouse = Warehouse(directory)
    tables = warehouse.named_in(statement)
    with ExitStack() as stack:
        found = ask(
            stack,
            warehouse,
            tables,
            statement,
            engine=engine,
            start_spark=no_spark,
            notice=said.append,
            raw=raw,
        )
        return found.engine, list(found.rows)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Two visits, one before its table had the column `n`; topics of which nothing was readable."""
    directory = tmp_path / "new"
    described = {"mode": "append", "partition_by": ["hour"], "schema_mode": "merge"}
    times = pa.array([datetime.datetime(2015, 5, 17, 12)], pa.timestamp("us", "UTC"))
    for row in ({"path": ["/a"]}, {"path": [None], "n": [7]}):
        rows = pa.table({"hour": ["2015-05-17-12"], "at": times, **row})
        write_deltalake(str(directory / "visit"), rows, **described)
    for place, describe in (
        (directory / "clicks", rows_description),
        (directory / "quarantine-tables/clicks", quarantine_description),
        (directory / "quarantine-tables/views", quarantine_description),
    ):
        place.mkdir(parents=True)
        schema = pa.schema({"reason": pa.string(), "hour": pa.string()})
        DeltaTable.create(str(place), schema, partition_by=["hour"], description=describe("clicks"))
        if "quarantine" in str(place):
            bad = pa.table({"reason": ["no event"] * 2, "hour": ["2015-05-17-12"] * 2})
            write_deltalake(str(place), bad, mode="append")
    return directory.rename(tmp_path / "wäre [ho]use* 'n'")  # signs with a meaning for DuckDB


def test_duckdb_answers_from_the_files_of_one_version(warehouse: Path) -> None:
    noon = datetime.datetime(2015, 5, 17, 12)
    assert answered(warehouse, "select * from visit order by n") == (
        "DuckDB",
        [(noon, "/a", "2015-05-17-12", None), (noon, None, "2015-05-17-12", 7)],
    )
    assert answered(warehouse, "select path from visit order by path") == (
        "DuckDB",
        [(None,), ("/a",)],
    )
    assert answered(warehouse, "select count(*) from clicks") == ("DuckDB", [(0,)])
    # A file that no version names is no part of it.
    stray = warehouse / "visit/hour=2015-05-17-12/stray.parquet"
    stray.write_bytes(b"")
    assert answered(warehouse, "select count(*) from visit") == ("DuckDB", [(2,)])


def test_a_name_and_a_value_in_the_path_of_a_warehouse_are_no_column(tmp_path: Path) -> None:
    """DuckDB took them for partitions: every row had their values."""
    directory = tmp_path / "server=zz" / "hour=1"
    rows = pa.table({"server": ["a", "b"], "n": [1, 2], "hour": ["2015-05-17-12"] * 2})
    for _ in range(2):
        write_deltalake(str(directory / "visit"), rows, mode="append", partition_by=["hour"])
    statement = "select server, hour, sum(n) as s from visit group by server, hour order by server"
    expected = [("a", "2015-05-17-12", 2), ("b", "2015-05-17-12", 4)]
    for engine in ("auto", "duckdb"):
        assert answered(directory, statement, engine) == ("DuckDB", expected)


def test_tables_and_columns_are_listed_without_any_engine(warehouse: Path) -> None:
    tables = ["clicks", "quarantine_clicks", "quarantine_views", "visit"]
    assert answered(warehouse, "show tables") == (
        "the tables' logs",
        [("", name, True) for name in tables],
    )
    columns = [("at", "timestamp"), ("path", "string"), ("hour", "string"), ("n", "bigint")]
    assert answered(warehouse, "DESCRIBE Visit;") == (
        "the table's log",
        [(*column, None) for column in columns],
    )


def test_nested_columns_are_described_in_full(tmp_path: Path) -> None:
    payer = pa.struct([("name", pa.string()), ("since", pa.date32()), ("rank", pa.int16())])
    kinds = {
        "amount": pa.decimal128(12, 2),
        "payer": payer,
        "lines": pa.list_(pa.struct([(f"field_{n:02}", pa.int64()) for n in range(30)])),
        "tags": pa.map_(pa.string(), pa.int32()),
    }
    rows = pa.schema(list(kinds.items())).empty_table()
    write_deltalake(str(tmp_path / "payments"), rows)
    inner = ",".join(f"field_{n:02}:bigint" for n in range(30))
    done = commands.run("sql", "describe payments", "--warehouse", tmp_path, status=0)
    shown = [line.split() for line in done.stdout.splitlines()]
    assert [cells for cells in shown if cells and cells[0] in kinds] == [
        ["amount", "decimal(12,2)"],
        ["payer", "struct<name:string,since:date,rank:smallint>"],
        ["lines", f"array<struct<{inner}>>"],
        ["tags", "map<string,int>"],
    ]


OTHERWISE = "; --engine duckdb answers without Spark, by DuckDB's own rules"


@pytest.mark.parametrize(
    ("statement", "engine", "said"),
    [
        ("select upper(path) from visit", "auto", f"upper){OTHERWISE}"),
        ("select n / 0 as r from visit", "auto", f"the sign /){OTHERWISE}"),
        ("select translate_it(path) as r from visit", "auto", "translate_it)"),
        ("describe extended visit", "auto", "no SELECT)"),
        ("with raw_visit as (select 1) select * from raw_visit", "auto", "a topic)"),
        ("select n * 9223372036854775807 as m from visit", "auto", "DuckDB: Out of Range"),
        ("select count(*) from visit", "spark", "--engine spark)"),
    ],
)
def test_all_else_is_sparks_and_that_is_said_before_it_starts(
    warehouse: Path, statement: str, engine: str, said: str
) -> None:
    notices: list[str] = []
    with pytest.raises(SparkAsked):
        answered(warehouse, statement, engine, notices)
    (notice,) = notices
    assert notice.startswith(f"Spark is starting ({said}")
    assert notice.endswith(said) or "DuckDB: " in said


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("select * from visits", "no table visits; did you mean visit? (there are: clicks, "),
        ("describe nosuch", "no table nosuch (there are: clicks, "),
        ("desc table visits;", "no table visits; did you mean visit? (there are: clicks, "),
        ("describe views", "no table views; 2 of its topic's messages could not become rows: "),
        ("Selec 1", "no statement begins with 'selec'; did you mean select?"),
        (" ;", "the statement is empty"),
        ("select 'it''s from visit", "the quote ' is not closed"),
        ('select "x from visit', 'the quote " is not closed'),
        ("select `n from visit", "the quote ` is not closed"),
        ("select count(*) from RAW_visit", "raw_visit reads a topic from its brokers, and no depl"),
        ("describe raw_visit", "raw_visit reads a topic from its brokers, and no deployment runs"),
        ("select 1 from no-such", "no table no-such (there are: clicks, "),
        ("select 1 from `quarantine-clicks`", "no table quarantine-clicks; did you mean quar"),
        ("DROP table visit", "sql only reads, and 'drop' would change nothing in the warehouse: "),
        ("insert into visit values (1)", "sql only reads, and 'insert' would change nothing"),
        ("/* */ -- x\nSET a = 1", "sql only reads, and 'set' would change nothing"),
        ("select 1; select 2", "more follows the first statement: sql answers only one"),
        ("with a as (select 1) insert into visit select 1", "sql only reads, and 'insert'"),
        ("from visit insert overwrite directory '/tmp/x' select n", "sql only reads, and 'insert'"),
        ("explain analyze insert into visit values (1)", "sql only reads, and 'insert'"),
        (
            "select pat from visit",
            "no column pat in visit; did you mean path? (there are: at, path, hour, n)",
        ),
        (
            "select nosuch from visit a join visit b on a.n = b.n",
            "no column nosuch in a, b (there are: at, path, hour, n)",
        ),
        (
            "select * from views",
            "no table views; 2 of its topic's messages could not become rows: ",
        ),
    ],
)
def test_what_is_not_there_is_one_line_at_once(warehouse: Path, statement: str, said: str) -> None:
    with pytest.raises(SqlError) as error:
        answered(warehouse, statement)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("statement", "ending"),
    [
        ("select * from orders", "); a topic of which nothing is loaded yet is read as raw_orders"),
        (
            "select * from my-orders",
            "; a topic of which nothing is loaded yet is read as raw_my_orders",
        ),
        ("select nosuch from visit", "hour, n)"),
        ("select * from quarantine_orders", "visit)"),
    ],
)
def test_beside_a_deployment_a_topic_without_a_table_is_read_from_its_brokers(
    warehouse: Path, statement: str, ending: str
) -> None:
    with pytest.raises(SqlError) as error:
        answered(warehouse, statement, raw=(WarehouseConfig(warehouse_dir=warehouse), "zk:2181"))
    assert str(error.value).endswith(ending)


def test_a_warehouse_without_tables_is_said_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(SqlError) as error:
        answered(tmp_path, "select * from visit")
    place = f"no load has left a table in {tmp_path}; --dir or --warehouse names another place"
    assert str(error.value) == f"no table visit ({place})"


def test_a_deployments_directory_is_not_taken_for_its_warehouse(warehouse: Path) -> None:
    root = warehouse.parent / "var-log"
    root.mkdir()
    with pytest.raises(SqlError, match=r"var-log; --dir or --warehouse names another place\)$"):
        answered(root, "select * from visit")
    warehouse.rename(root / "warehouse")
    for engine in ("auto", "duckdb"):
        with pytest.raises(SqlError) as error:
            answered(root, "select * from visit", engine)
        place = f"(no load has left a table in {root}; did you mean {root / 'warehouse'}?)"
        assert str(error.value).endswith(place)


def test_duckdbs_own_errors_list_the_tables_where_it_missed_one(warehouse: Path) -> None:
    with pytest.raises(SqlError, match=r"visits does not exist.*\(there are: clicks, "):
        answered(warehouse, "select * from visits", "duckdb")
    with pytest.raises(SqlError, match="pat") as error:
        answered(warehouse, "select pat from visit", "duckdb")
    assert "clicks" not in str(error.value)


def test_duckdb_itself_may_be_asked(warehouse: Path) -> None:
    assert answered(warehouse, "from visit select max(n)", "duckdb") == ("DuckDB", [(7,)])
    with pytest.raises(SqlError, match="syntax error"):
        answered(warehouse, "selekt", "duckdb")


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("copy (select 1) to 'FILE'", "copy"),
        ("/* */ Copy (select 1) to 'FILE'", "copy"),
        ("explain analyze copy (select 1) to 'FILE'", "copy"),
        ("explain (analyze, format json) copy (select 1) to 'FILE'", "copy"),
        ("export database 'FILE'", "export"),
        ("attach 'FILE' as a", "attach"),
        ("install httpfs", "install"),
        ("load httpfs", "load"),
        ("set threads = 1", "set"),
        ("pragma threads = 1", "pragma"),
        ("call pragma_version()", "call"),
        ("with a as (select 1) insert into b select * from a", "insert"),
        ("use memory", "use"),
        ("prepare p as select 1", "prepare"),
    ],
)
def test_duckdb_is_asked_for_nothing_that_writes(
    warehouse: Path, tmp_path: Path, statement: str, word: str
) -> None:
    file = tmp_path / "written"
    with pytest.raises(SqlError) as error:
        answered(warehouse, statement.replace("FILE", str(file)), "duckdb")
    assert str(error.value).startswith(f"sql only reads, and {word!r} would change nothing in the")
    assert not file.exists()


@pytest.mark.parametrize("engine", ["auto", "duckdb", "spark"])
def test_a_second_statement_is_refused(warehouse: Path, engine: str) -> None:
    with pytest.raises(SqlError, match="more follows the first statement: sql answers only one"):
        answered(warehouse, "select 1; select 2", engine)


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("(select ';' as x);; -- ; end", [(";",)]),
        ("select $$a;b$$", [("a;b",)]),
        ("values (1)", [(1,)]),
        ("from visit select count(*)", [(2,)]),
        ("with a as (select 1) select * from a", [(1,)]),
        ("pivot (select 1 as a, 2 as b) on a using sum(b)", [(2,)]),
        ("select 'copy; insert into'", [("copy; insert into",)]),
    ],
)
def test_duckdb_is_asked_for_all_that_reads(
    warehouse: Path, statement: str, rows: list[Any]
) -> None:
    assert answered(warehouse, statement, "duckdb") == ("DuckDB", rows)


@pytest.mark.parametrize("statement", ["explain select n from visit", "summarize visit"])
def test_duckdb_may_be_asked_about_a_query(warehouse: Path, statement: str) -> None:
    assert answered(warehouse, statement, "duckdb")[1]


def test_the_command_says_what_answered_and_where_the_messages_of_an_empty_table_are(
    warehouse: Path,
) -> None:
    statement = "select count(*) as n from clicks"
    done = commands.run("sql", statement, "--warehouse", warehouse, "--format", "csv", status=0)
    assert done.stdout == "n\n0\n"
    assert done.stderr.splitlines() == [
        f"kafka2011: answered by DuckDB from clicks (version 0) in {warehouse}",
        "kafka2011: clicks is empty; 2 of its topic's messages could not become rows: see "
        "quarantine_clicks",
    ]


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("select 'clicks' as visit, path as quarantine_views from visit -- clicks", ["visit"]),
        ("select * from visit v join clicks on true", ["clicks", "visit"]),
        ("with visit as (select * from visit) select * from visit", ["visit"]),
        ('select "clicks", c from visit lateral view explode(array(1)) as c', ["visit"]),
        ("select 1 as visit", []),
        ("describe visit", ["visit"]),
        ("show tables in x", ["clicks", "quarantine_clicks", "quarantine_views", "visit"]),
    ],
)
def test_the_tables_that_an_answer_is_from_are_those_read(
    warehouse: Path, statement: str, read: list[str]
) -> None:
    known = Warehouse(warehouse)
    assert sorted(known.read_by(statement, known.named_in(statement))) == read


def test_ctrl_c_ends_a_long_query_of_duckdb(tmp_path: Path) -> None:
    long = "select count(*) from range(100000) a, range(10000000) b where a.range * b.range % 7 = 3"
    words = ("sql", "--warehouse", tmp_path, "--engine", "duckdb", long)
    assert commands.interrupted(words, after_processor_s=4) == (130, "")


def test_a_table_that_spark_cannot_open_is_one_line(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of it was not there: that ended in the traceback of PySpark."""
    tables = Warehouse(warehouse).named_in("select 1 from visit")
    gone = AnalysisException(
        "[PATH_NOT_FOUND] Path does not exist: /x.parquet.\nJVM stacktrace: ..."
    )

    def read(*_: Any) -> None:
        raise gone

    monkeypatch.setattr(spark_engine, "read_table", read)
    with pytest.raises(SqlError) as raised:
        sparks_answer(Session(), "select 1", tables)
    assert str(raised.value) == "[PATH_NOT_FOUND] Path does not exist: /x.parquet."


@pytest.mark.parametrize("error", [ValueError("year 0 is out of range"), TypeError("unhashable")])
def test_a_value_that_python_cannot_have_is_one_line(error: Exception) -> None:
    found = sparks_answer(Session((1,), error), "", {})
    with pytest.raises(SqlError, match=f"Python cannot take a value of the answer: {error}"):
        list(found.rows)
