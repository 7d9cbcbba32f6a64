"""Which names tables get: none leads out of its place, and no two topics have one."""

from pathlib import Path

import pytest

from kafka2011.events.topics import TOPICS, table_name
from kafka2011.services.warehouse.table_paths import (
    QUARANTINE,
    TablePlaces,
    may_have_plain_name,
    tables_in,
    unique_name,
    view_name,
)

PLAIN = ["access-log", "a_b", "a.b", "Logins", "x" * 249, *TOPICS]
NOT_PLAIN = [
    *(".", "..", "../x", "_delta_log", "-delta-log", ".hidden", "a b", "50%41", "a[1]", "é" * 120),
    *("x" * 256, "quarantine", "Quarantine", "quarantine-tables", "quarantine.access.log"),
    *("schemas.json", "page_view", "Page-View", "page.view", unique_name("a-b")),
]


@pytest.mark.parametrize("topic", [*PLAIN, *NOT_PLAIN])
def test_a_new_table_has_its_topics_name_unless_that_is_no_plain_word_or_another_s(
    topic: str, tmp_path: Path
) -> None:
    assert may_have_plain_name(topic) == (topic in PLAIN)
    places = TablePlaces(tmp_path)
    name = table_name(topic) if topic in PLAIN else unique_name(topic)
    assert places.rows(topic) == tmp_path / name
    assert places.quarantine(topic) == tmp_path / QUARANTINE / name
    assert len(name.encode()) <= 255
    assert name[:1] not in ("", ".", "_")
    assert "/" not in name


def test_of_names_that_can_be_mixed_up_one_topic_has_the_plain_one(tmp_path: Path) -> None:
    places = TablePlaces(tmp_path)
    topics = ["a-b", "a_b", "A-B", "a.b", "A.b"]
    for _ in range(2):
        names = [places.rows(topic).name for topic in topics]
        assert names == ["a_b", *map(unique_name, topics[1:])]
    assert len({view_name(name).casefold() for name in names}) == len(topics)


@pytest.mark.parametrize(
    ("inside", "is_free"),
    [("hour=2015-05-17-10/a.parquet", True), ("_delta_log/x", True), ("notes.txt", False)],
)
def test_a_directory_with_anything_else_in_it_is_not_taken_for_a_table(
    tmp_path: Path, inside: str, is_free: bool
) -> None:
    (tmp_path / "logs" / inside).parent.mkdir(parents=True)
    (tmp_path / "logs" / inside).touch()
    assert TablePlaces(tmp_path).rows("logs").name == ("logs" if is_free else unique_name("logs"))


def make_tables(warehouse: Path, *names: str) -> None:
    for name in names:
        (warehouse / name / "_delta_log").mkdir(parents=True)
        (warehouse / name / "_delta_log" / f"{0:020d}.json").touch()


def test_every_table_is_a_view_of_its_own(tmp_path: Path) -> None:
    assert tables_in(tmp_path / "nowhere") == {}
    make_tables(tmp_path, "access_log", "quarantine/access_log", f"{QUARANTINE}/clicks", "a.b")
    (tmp_path / "not-a-table" / "_delta_log").mkdir(parents=True)
    assert tables_in(tmp_path) == {
        "a_b": tmp_path / "a.b",
        "access_log": tmp_path / "access_log",
        "quarantine_access_log": tmp_path / "quarantine" / "access_log",
        "quarantine_clicks": tmp_path / QUARANTINE / "clicks",
    }


def test_a_view_is_the_table_s_that_has_exactly_its_name(tmp_path: Path) -> None:
    make_tables(tmp_path, "a.b", "a_b", "A_b", "quarantine_x", f"{QUARANTINE}/x")
    found = tables_in(tmp_path)
    assert len(found) == 5
    assert (found["A_b"], found["quarantine_x"]) == (tmp_path / "A_b", tmp_path / "quarantine_x")
    assert len({name.casefold() for name in found}) == 5
