"""Which statements DuckDB may answer in Spark's place, and Spark's names of their columns.

That the answers are the same is tested beside Spark (tests/integration/test_sql_engines.py).
"""

import json

import duckdb
import pytest

from kafka2011.services.warehouse.shell.kinds import (
    BINARY,
    OTHER,
    REAL,
    SINGLE,
    TEXT,
    TIME,
    WHOLE,
)
from kafka2011.services.warehouse.shell.same_answer import Unknown, check_text, column_names
from kafka2011.services.warehouse.shell.syntax_tree import Unsure

TABLES = {
    "t": {"guid": BINARY, "event_time": TIME, "path": TEXT, "n": WHOLE, "x": REAL, "tags": OTHER},
    "u": {"path": TEXT, "count": WHOLE},
    "s": {"f": SINGLE, "x": REAL, "n": WHOLE},
    "p": {"amount": "decimal(12,2)", "most": "decimal(38,6)", "method": TEXT, "n": WHOLE},
}


def names(statement: str) -> list[str]:
    check_text(statement)
    parsed = duckdb.execute("select json_serialize_sql(?)", [statement]).fetchall()
    return column_names(json.loads(parsed[0][0]), TABLES)


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("select count(*), Count(N) from t", ["count(1)", "count(N)"]),
        ("select count(distinct path) from t", ["count(DISTINCT path)"]),
        ("select * from u;", ["path", "count"]),
        ("select t.path, max(t.n), 1, 'x' from t group by t.path", ["path", "max(n)", "1", "x"]),
        ("select hour(event_time) from t", ["hour(event_time)"]),
        ("select substr(path, 1, 2) from t", ["substr(path, 1, 2)"]),
        ("select n / 2 as half from t order by half", ["half"]),
        ("with w as (select path as p from t) select p from w", ["p"]),
        ("select 1 as one", ["one"]),
        ("select 1, 'x'", ["1", "x"]),
        ("select amount, most, method from p limit 2", ["amount", "most", "method"]),
        ("select * from p where amount > 1.50 order by most", [*TABLES["p"]]),
        ("select sum(amount), max(most) from p where amount < n", ["sum(amount)", "max(most)"]),
        ("select f, x from s where f > x or f in (f, x) order by f", ["f", "x"]),
        ("select sum(f), mean(f), max(f) from s", ["sum(f)", "mean(f)", "max(f)"]),
        ("select distinct path p, n from t order by 2, p", ["p", "n"]),
        ("select hour(event_time) as h from t where year(event_time) > 2014", ["h"]),
        ("select sum(s) z from (select sum(amount) as s from p)", ["z"]),
    ],
)  # fmt: skip
def test_columns_have_the_names_that_spark_gives(statement: str, columns: list[str]) -> None:
    assert names(statement) == columns


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        # Another meaning of the same text.
        ('select "path" from t', '"'),
        (r"select count(*) from t where path like 'a\_%'", "\\"),
        ("select count(*) from t -- path", "--"),
        ("select 1L from t", "1L"),
        ("from t select path", "no SELECT"),
        ("set timezone = 'UTC'", "no SELECT"),
        ("select 1 from t; select 2 from t", "more than one statement"),
        # Errors in one, an answer in the other.
        ("select n / x as r from t", "/"),
        ("select n / 0 as r from t", "/"),
        ("select n % 0 as r from t", "%"),
        ("select cast(path as int) as r from t", "cast as int"),
        # Other conversions, functions, names, orders.
        ("select count(*) from t where path = 5", "kinds of values mixed: real, text"),
        ("select count(*) from t where n = '5'", "kinds of values mixed: real, text"),
        ("select count(*) from t where n in (1, null)", "NULL"),
        ("select count(*) from t where event_time > '2015-05-17T12'", "written YYYY-MM-DD"),
        ("select count(*) from t where event_time > '2015-05-17 12:00:00+02'", "written YYYY"),
        ("select count(*) from t where n", "a condition that is no comparison"),
        ("select count(*) from t where path ilike 'a%'", "~~*"),
        ("select round(x, 1) from t", "round"),
        ("select lower(path) from t", "lower"),
        ("select substr(path, 0) from t", "substr"),
        ("select substr(path, 2) from t", "a column without a name"),
        ("select n + 1 from t", "a column without a name"),
        ("select 1.5 from t", "a column of a decimal constant type"),
        ("select path, path from t", "two columns of one name"),
        ("select tags from t", "a column of a nested or rare type"),
        ("select * from t", "a column of a nested or rare type"),
        ("select * from u, u as v", "* of a JOIN"),
        ("select path from t, u", "the column path"),
        ("select n as path, path as p from t group by path, n", "path is a column and an alias"),
        ("select x, count(*) as c from t group by 1", "groups of doubles"),
        ("select distinct x from t", "groups of doubles"),
        ("select path from t order by 2", "an order of nested or rare values"),
        ("select path from t order by 'x'", "an order by a constant"),
        ("select path from t group by all", "this GROUP BY"),
        ("select path from t limit 10%", "this LIMIT"),
        ("select path from t tablesample 10%", "BASE_TABLE with sample"),
        ("select path from topic.t", "a table's name with a dot"),
        ("select count(*) over () as c from t", "WINDOW"),
        ("select path from t where n in (select count from u)", "SUBQUERY"),
        ("select path from t join u using (path)", "JOIN with using_columns"),
        ("select path from t union select path from u", "SET_OPERATION_NODE"),
        ("select s from range(3) r(s)", "FROM TABLE_FUNCTION"),
        ("select current_date from t", "current_date"),
        ("select one", "the column one"),
        ("select *", "*"),
        ("select sum(most) from p", "sum of decimal(38,6)"),
        ("select avg(amount) from p", "avg of decimal(12,2)"),
        ("select amount + 1 as a from p", "+"),
        ("select n from p where amount > 1e3", "a comparison of decimals with decimal constant"),
        ("select n from p where most > 0.1234567", "a comparison of decimals of 39 digits"),
        ("select n from p where amount = '1'", "a comparison of decimals with text"),
        ("select coalesce(amount, 0) as a from p", "kinds of values mixed: decimal(12,2), whole"),
        # A number of 32 bits is compared, and counted with, as one of 64 by Spark alone.
        ("select x from s where f = 0.1", "a float with decimal constant"),
        ("select x from s where f in (x, 5)", "a float with whole"),
        ("select x from s where f between 0.05 and x", "a float with decimal constant"),
        ("select x from s where n = f", "a float with whole"),
        ("select f * 2 as y from s", "*"),
        ("select f / 3 as y from s", "/"),
        ("select coalesce(f, x) as y from s", "kinds of values mixed: float, real"),
        ("select distinct f from s", "groups of doubles"),
        # What DuckDB alone takes.
        ("select n, from t", ", from"),
        ("select n from t where path isnull", "isnull"),
        ("select n from t fetch first 2 rows only", "fetch"),
        ("select n from t limit 2 offset 1 rows", "offset 1 rows"),
        ("select count(*) from t group by ()", "group by ()"),
        ("select n from t where event_time < '2015-05-17 24:00:00'", "written YYYY-MM-DD"),
        ("select timestamp '2015-05-17 24:00:00' as r from t", "cast as timestamp"),
        ("select distinct path from t order by n", "an order of DISTINCT rows"),
        ("select distinct path from t order by length(path)", "an order of DISTINCT rows"),
        ("select year(event_time) * 10000000 as r from t", "*"),
        ("select 1 + length(path) as r from t", "+"),
        ("select substr(path, 1, 3000000000) as r from t", "substr"),
        ("select n from t where (n > 1) = n in (1, 2)", "a test beside a comparison"),
        ("select n from t where (n > 1) = n between 1 and 2", "a test beside a comparison"),
        ("select n from t where (n > 1) = (path is null)", "a test beside a comparison"),
        ("select n from p where coalesce(0.5, 1.5) < amount", "decimals with decimal constant"),
        ("select n from p where case when n > 1 then 0.5 end < amount", "decimals with decimal"),
        ("select distinct on (path) path from t", "DISTINCT_MODIFIER"),
        ("select a.b.path from t a", "the column a.b.path"),
    ],
)  # fmt: skip
def test_what_may_differ_is_left_to_spark(statement: str, reason: str) -> None:
    with pytest.raises(Unsure) as unsure:
        names(statement)
    assert reason in str(unsure.value)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("select * from v", "no table v"),
        ("select pth from t", "no column pth in t; did you mean path?"),
        ("select path from t where m > 1", "no column m in t"),
    ],
)
def test_what_no_engine_knows_is_said_at_once(statement: str, message: str) -> None:
    with pytest.raises(Unknown) as unknown:
        names(statement)
    assert str(unknown.value) == message
