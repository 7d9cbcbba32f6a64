"""The checker finds each kind of violation that is planted in a good history."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.faults.checker import check

History = list[dict[str, Any]]


def latest(reader: str, partition: int, offset: int) -> dict[str, Any]:
    return {"f": "latest", "reader": reader, "partition": partition, "offset": offset}


def good() -> History:
    """Two producers, two partitions, a kill; the last message of each was never confirmed."""
    history: History = []
    logs: dict[int, History] = {0: [], 1: []}
    for sequence in range(6):
        for producer in ("a.0", "b.0"):
            partition = sequence % 2
            message = {"id": f"{producer}.{sequence}", "partition": partition, "crc": sequence}
            history.append({"f": "send", **message})
            if sequence < 5:
                start = 100 * len(logs[partition])
                logs[partition].append({**message, "offset": start, "next_offset": start + 100})
                history.append({"f": "durable", "id": message["id"]})
                history.append({"f": "poll", **message, "offset": start})
                history.append(latest("1", partition, start + 100))
    history.append({"f": "fault", "kind": "SIGKILL"})
    history += [{"f": "leads", "epoch": epoch, "by": "ab"[epoch % 2]} for epoch in range(4)]
    for partition, messages in logs.items():
        history += [{"f": "final", **message} for message in messages]
        history.append({"f": "end", "partition": partition, "offset": 100 * len(messages)})
    return history


def test_a_good_history_is_good() -> None:
    verdict = check(good())
    assert verdict.is_good, str(verdict)
    assert (verdict.sent, verdict.durable, verdict.kept, verdict.faults) == (12, 10, 10, 1)


def final(history: History, number: int) -> dict[str, Any]:
    return [event for event in history if event["f"] == "final"][number]


def without(event: str, name: str) -> Callable[[History], None]:
    def plant(history: History) -> None:
        history[:] = [one for one in history if one["f"] != event or one["id"] != name]

    return plant


def swapped(history: History) -> None:
    first, second = final(history, 0), final(history, 2)
    first["id"], second["id"] = second["id"], first["id"]
    first["crc"], second["crc"] = second["crc"], first["crc"]


def twice(history: History) -> None:
    again = dict(final(history, 5))
    again["offset"], again["next_offset"] = again["next_offset"], again["next_offset"] + 100
    history.insert(-1, again)
    next(e for e in history if e["f"] == "end" and e["partition"] == 0)["offset"] += 100


PLANTED: dict[str, Callable[[History], Any]] = {
    "lost": without("final", "a.0.2"),
    "vanished": without("final", "b.0.4"),
    "phantom": without("send", "a.0.1"),
    "changed": lambda history: final(history, 1).update(crc=99),
    "inconsistent": lambda history: final(history, 3).update(id="a.0.4", crc=4),
    "reordered": swapped,
    "twice": twice,
    "fell": lambda history: history.insert(-1, latest("1", 0, 100)),
    "two leaders": lambda history: history.append({"f": "leads", "epoch": 2, "by": "b"}),
    "gap": lambda history: final(history, 1).update(next_offset=201),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_each_planted_violation_is_found(kind: str) -> None:
    history = good()
    PLANTED[kind](history)
    verdict = check(history)
    assert kind in verdict.violations, str(verdict)
    assert not verdict.is_good


def test_a_log_that_ends_before_its_end_offset_has_a_gap() -> None:
    history = good()
    history[-1]["offset"] += 15
    assert "gap" in check(history).violations


def test_an_end_that_a_reader_was_shown_is_there_at_the_end() -> None:
    history = good()
    history.insert(-1, latest("2", 0, 10_000))
    assert "fell" in check(history).violations


def test_what_was_not_confirmed_may_be_there_or_not() -> None:
    history = good()
    history.insert(
        -1,
        {"f": "final", "id": "a.0.5", "partition": 1, "crc": 5, "offset": 400, "next_offset": 500},
    )
    history[-1]["offset"] = 500
    assert check(history).is_good
