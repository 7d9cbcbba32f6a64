"""Snapshot and deltas: a browser that applies them has what the server has."""

import json
import random
from typing import Any

import pytest

from kafka2011.services.dashboard import changes
from kafka2011.services.dashboard.changes import ChangeLog, diff


def apply(sections: dict[str, Any], text: str) -> None:
    for name, change in json.loads(text)["changes"].items():
        rows = sections.setdefault(name, {})
        for key in change.get("gone", ()):
            del rows[key]
        rows.update(change.get("set", {}))


def test_deltas_lead_from_any_kept_picture_to_the_present_one() -> None:
    rng = random.Random(2011)
    log = ChangeLog(kept=20)
    pictures: dict[int, dict[str, Any]] = {}
    for _ in range(50):
        rows = {str(rng.randrange(8)): {"v": rng.randrange(3)} for _ in range(rng.randrange(8))}
        log.advance({"a": rows, "b": {"x": {"n": rng.randrange(2)}}})
        pictures[log.id] = json.loads(log.snapshot(["a", "b"]))["sections"]
    for number, picture in pictures.items():
        found = log.since(number, ["a", "b"])
        assert (found is None) == (number < 30), "forgotten: a snapshot is needed"
        for _, text in found or ():
            apply(picture, text)
        assert number < 30 or picture == pictures[50]
    assert log.since(-1, ["a"]) is None
    assert log.since(99, ["a"]) is None
    assert log.since(50, ["a"]) == []


def test_numbers_of_an_earlier_run_need_a_snapshot() -> None:
    earlier, log = ChangeLog(first=1_000), ChangeLog(first=9_000)
    for _ in range(30):
        earlier.advance({"a": {"old": {"v": 1}}})
        log.advance({"a": {"new": {"v": 1}}})
    assert log.samples == 30
    assert log.since(earlier.id, ["a"]) is None
    assert log.since(log.id - 1, ["a"]) is not None


def test_a_message_says_of_what_time_it_is_and_how_old(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"at_ms": 5_000, "s": 100.0}
    monkeypatch.setattr(changes, "now_ms", lambda: times["at_ms"])
    monkeypatch.setattr(changes.time, "monotonic", lambda: times["s"])
    log = ChangeLog()
    log.advance({"a": {}})
    times.update(at_ms=7_000, s=102.0)
    log.advance({"a": {}})
    times.update(at_ms=0, s=142.5)  # whatever the clock says now
    found = log.since(1, ["a"])
    assert found is not None
    for text in (found[0][1], log.snapshot(["a"])):
        message = json.loads(text)
        wanted = {"id": 2, "at_ms": 7_000, "pause_ms": 2_000, "age_ms": 40_500}
        assert {name: message[name] for name in wanted} == wanted


def test_only_changes_of_wanted_sections_are_sent() -> None:
    log = ChangeLog()
    for value in (1, 2):
        log.advance({"a": {"x": {"v": value}}, "b": {"y": {"v": value}}})
    found = log.since(1, ["b"])
    assert found is not None
    assert json.loads(found[0][1])["changes"] == {"b": {"set": {"y": {"v": 2}}}}
    assert diff({"a": {"v": 1}}, {"a": {"v": 1}}) == {}
