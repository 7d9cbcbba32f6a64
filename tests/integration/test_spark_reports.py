"""The reports on member activity, against figures counted here in plain Python."""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka2011.services.dashboard.sampling.spark_jobs import JobReader
from kafka2011.services.warehouse.delta_table import WarehouseError
from kafka2011.services.warehouse.reports.activity import BY_NAME, REPORTS
from kafka2011.services.warehouse.reports.activity_job import (
    ActivityRun,
    missing_input,
    write_files,
)
from kafka2011.services.warehouse.reports.traffic import make_report

pytestmark = [pytest.mark.integration, pytest.mark.spark]

START = datetime(2026, 5, 17, 22, 10, tzinfo=UTC)  # the second hour is another day
Events = dict[str, list[dict[str, Any]]]


def made_events(seed: int) -> Events:
    """Two days of a few members, with a scraper, a guesser, and events that came twice."""
    rng = random.Random(seed)
    events: Events = {name: [] for name in ("page_view", "impression", "click", "search", "login")}
    number = 0

    def add(table: str, at: datetime, **fields: Any) -> bytes:
        nonlocal number
        number += 1
        guid = number.to_bytes(16, "big")
        events[table].append(
            {"guid": guid, "event_time": at, "hour": f"{at:%Y-%m-%d-%H}", **fields}
        )
        return guid

    for member in range(1, 13):
        at = START + timedelta(seconds=rng.randrange(5000))
        for _ in range(rng.randrange(3, 40)):
            at += timedelta(minutes=rng.choice([0, 1, 3, 29, 30, 31, 90]))
            path = f"/p/{rng.randrange(9)}"
            add("page_view", at, member_id=member, path=path, host=f"h{member}",
                status=rng.choice([200, 200, 200, 404]))  # fmt: skip
            for position in range(rng.randrange(4)):
                shown = add("impression", at, item=f"job-{rng.randrange(6)}", position=position)
                for _ in range(rng.choice([0, 0, 0, 1, 2])):
                    add("click", at, impression=shown)
            if rng.random() < 0.4:
                add("search", at, query=rng.choice(["kafka", "hadoop", "ä b"]), member_id=member,
                    result_count=rng.randrange(3), elapsed_ms=rng.randrange(3, 90))  # fmt: skip
            add("login", at, host=f"h{member % 4}", succeeded=rng.random() < 0.9)
    add("click", START, impression=bytes(16))  # of no impression that is there
    for second in range(59):
        at = START + timedelta(seconds=second)
        add("page_view", at, member_id=99, path=f"/in/{second}", host="s", status=200)
        if second % 10 == 0:
            add("login", at, host="guesser", succeeded=False)
    for rows in events.values():
        rows += rng.sample(rows, len(rows) // 10)  # delivered again
    return events


def unique(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({row["guid"]: row for row in rows}.values())


def click_through(events: Events, what: str) -> dict[Any, tuple[int, int]]:
    clicked = {row["impression"] for row in events["click"]}
    shown: Counter[Any] = Counter(row[what] for row in events["impression"])
    hit: Counter[Any] = Counter(row[what] for row in events["impression"] if row["guid"] in clicked)
    return {value: (count, hit[value]) for value, count in shown.items()}


def co_viewed(views: list[dict[str, Any]]) -> list[tuple[int, str, str]]:
    viewed = defaultdict(set)
    for row in views:
        if row["status"] < 400:
            viewed[row["member_id"], row["event_time"].date()].add(row["path"])
    pairs = defaultdict(set)
    for (member, _), paths in viewed.items():
        for pair in combinations(sorted(paths), 2):
            pairs[pair].add(member)
    return sorted((-len(members), *pair) for pair, members in pairs.items())[:20]


def visits(events: Events) -> list[list[datetime]]:
    by_member = defaultdict(list)
    for row in events["page_view"]:
        by_member[row["member_id"]].append(row["event_time"])
    found: list[list[datetime]] = []
    for times in by_member.values():
        last = None
        for at in sorted(times):
            if last is None or at - last > timedelta(minutes=30):
                found.append([])
            found[-1].append(at)
            last = at
    return found


def length_of(views: int) -> str:
    for most, name in ((1, "1"), (5, "2-5"), (10, "6-10"), (20, "11-20"), (50, "21-50")):
        if views <= most:
            return name
    return "over 50"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Events]:
    directory = tmp_path_factory.mktemp("warehouse")
    events = made_events(7)
    for name, rows in events.items():
        table = pa.Table.from_pylist(rows)
        places = {"position": pa.int32(), "status": pa.int32()}
        fields = [f.with_type(places.get(f.name, f.type)) for f in table.schema]
        write_deltalake(directory / name, table.cast(pa.schema(fields)), partition_by=["hour"])
    return directory, {name: unique(rows) for name, rows in events.items()}


def test_every_figure_is_the_one_counted_by_hand(
    spark: Any, warehouse: tuple[Path, Events], tmp_path: Path
) -> None:
    directory, events = warehouse
    run = ActivityRun(spark, directory)
    found = {report.name: run.make(report) for report in REPORTS}
    run.close()
    rows = {name: made.rows for name, made in found.items()}

    by_item = click_through(events, "item")
    ranked = sorted(by_item.items(), key=lambda pair: (-pair[1][1], pair[1][0], pair[0]))
    assert [
        (row["item"], (row["impressions"], row["clicks"])) for row in rows["click-through-items"]
    ] == ranked
    assert [
        (row["position"], row["impressions"], row["clicks"], row["click_through"])
        for row in rows["click-through-positions"]
    ] == [(p, s, c, c / s) for p, (s, c) in sorted(click_through(events, "position").items())]

    searches = defaultdict(list)
    for row in events["search"]:
        searches[row["query"]].append(row)
    assert [tuple(row.values()) for row in rows["top-searches"]] == [
        (
            query,
            len(part),
            len({row["member_id"] for row in part}),
            sum(row["result_count"] == 0 for row in part),
            sum(row["elapsed_ms"] for row in part) / len(part),
        )
        for query, part in sorted(searches.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    ]

    best = co_viewed(events["page_view"])
    assert [(-row["members"], row["path"], row["also_viewed"]) for row in rows["co-viewed"]] == best

    lengths: Counter[str] = Counter()
    for visit in visits(events):
        lengths[length_of(len(visit))] += 1
    assert {row["length"]: row["sessions"] for row in rows["sessions"]} == lengths
    assert sum(row["page_views"] for row in rows["sessions"]) == len(events["page_view"])
    for row in rows["sessions"]:
        part = [visit for visit in visits(events) if length_of(len(visit)) == row["length"]]
        total = sum((max(visit) - min(visit) for visit in part), timedelta())
        assert row["duration_ms"] == pytest.approx(total / timedelta(milliseconds=1) / len(part))

    failures: Counter[tuple[str, str]] = Counter(
        (row["host"], row["hour"]) for row in events["login"] if not row["succeeded"]
    )
    guessers = {host for (host, _), count in failures.items() if count >= 5}
    assert "guesser" in guessers
    abuse = {(row["reason"], row["who"]): row["events"] for row in rows["abuse-candidates"]}
    assert {who for reason, who in abuse if reason == "failed logins"} == guessers
    assert abuse["failed logins", "guesser"] == 6
    assert abuse["scrapes profiles", "member 99 at s"] == 59
    assert len([who for reason, who in abuse if reason == "scrapes profiles"]) == 1

    for made in found.values():
        write_files(made, tmp_path)
        name = made.report.name
        assert json.loads((tmp_path / f"{name}.json").read_text())["rows"] == made.rows
        assert JobReader(None, tmp_path).reports()[name]["took_ms"] == made.took_ms > 0
        picture = ElementTree.fromstring((tmp_path / f"{name}.svg").read_text())
        assert len(picture.findall("{*}rect")) == 1 + len(made.rows)
        assert made.report.title.split()[0] in (tmp_path / f"{name}.txt").read_text()


def skewed(rng: random.Random) -> list[tuple[int, int]]:
    """Member and page: a few pages that many view, and a long tail."""
    return [(rng.randrange(60), int(150 * rng.random() ** 3)) for _ in range(1200)]


def even(rng: random.Random) -> list[tuple[int, int]]:
    """No page is viewed more than another, so none can be left out before its pairs are counted."""
    return [(member, page) for member in range(40) for page in rng.sample(range(90), 12)]


def apart(rng: random.Random) -> list[tuple[int, int]]:
    """The pages viewed most are never viewed together: the pairs are all among the others."""
    views = [(member, page) for member in range(600) for page in (member % 60, 60 + member)]
    return views + [(700 + n, 700 + page) for n in range(7) for page in rng.sample(range(9), 6)]


@pytest.mark.parametrize("shape", [skewed, even, apart])
def test_the_pairs_of_pages_are_the_best_of_all_pairs(
    spark: Any, tmp_path: Path, shape: Callable[[random.Random], list[tuple[int, int]]]
) -> None:
    views = [
        {"guid": number.to_bytes(16, "big"), "event_time": START, "hour": "2026-05-17-22",
         "member_id": member, "path": f"/p/{page}", "status": 200}
        for number, (member, page) in enumerate(shape(random.Random(3)))
    ]  # fmt: skip
    write_deltalake(tmp_path / "page_view", pa.Table.from_pylist(views), partition_by=["hour"])
    run = ActivityRun(spark, tmp_path)
    found = run.make(BY_NAME["co-viewed"]).rows
    run.close()
    assert [(-row["members"], row["path"], row["also_viewed"]) for row in found] == co_viewed(views)


def test_a_table_that_does_not_serve_is_named(spark: Any, tmp_path: Path) -> None:
    report = BY_NAME["top-searches"]
    assert missing_input(report, tmp_path) == "there is no table search"
    write_deltalake(tmp_path / "search", pa.table({"guid": [b"1"], "hour": ["x"]}))
    assert "has no column elapsed_ms" in missing_input(report, tmp_path)
    with pytest.raises(WarehouseError, match="no column"):
        ActivityRun(spark, tmp_path).make(report)


@pytest.mark.parametrize("sizes", [(None, 5, 1 << 62), (None,)], ids=["sizes", "no-sizes"])
@pytest.mark.parametrize("is_timed", [True, False])
def test_page_views_count_once_in_tasks_and_where_spark_must_compare_all(
    spark: Any, tmp_path: Path, is_timed: bool, sizes: Sequence[int | None]
) -> None:
    rng = random.Random(8)
    rows = [
        {
            "guid": rng.randbytes(16),
            "header_time": START + timedelta(minutes=rng.randrange(120)) if is_timed else None,
            "host": f"h{rng.randrange(9)}",
            "path": rng.choice([None, *(f"/{number}" for number in range(30))]),
            "status": rng.choice([None, 200, 404]),
            "bytes": rng.choice(sizes),
        }
        for _ in range(400)
    ]
    for row in rows:
        row["hour"] = f"{row['header_time'] or START:%Y-%m-%d-%H}"
    # Delivered again; without a time a copy may be in another hour.
    rows += [row if is_timed else {**row, "hour": "2026-05-18-09"} for row in rows[::9]]
    types = {"status": pa.int32(), "bytes": pa.int64(), "header_time": pa.timestamp("us", "UTC")}
    table = pa.Table.from_pylist(rows)
    fields = [f.with_type(types.get(f.name, f.type)) for f in table.schema]
    write_deltalake(tmp_path / "access_log", table.cast(pa.schema(fields)), partition_by=["hour"])
    once = unique(rows)
    found = make_report(spark, tmp_path, "access_log")
    assert (found.rows, found.totals.page_views) == (len(rows), len(once))
    assert found.totals.visitors == 9
    known = [row["bytes"] for row in once if row["bytes"] is not None]
    assert found.totals.bytes == (sum(known) if len(sizes) > 1 else None)
    assert all((hour.bytes is None) == (len(sizes) == 1) for hour in found.hours)
    assert found.totals.errors == sum(row["status"] == 404 for row in once)
    views = Counter(row["path"] for row in once)
    best = sorted(views.items(), key=lambda pair: (-pair[1], pair[0] or ""))[:20]
    assert [(top.path, top.page_views) for top in found.top_paths] == best
    assert sum(hour.page_views for hour in found.hours) == len(once)
    if is_timed:
        hours = {row["hour"] for row in once}
        assert {hour.hour: hour.visitors for hour in found.hours} == {
            hour: len({row["host"] for row in once if row["hour"] == hour}) for hour in hours
        }
