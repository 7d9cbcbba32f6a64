"""The reader of /metrics against prometheus_client's own writer."""

import math

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from kafka2011.services.dashboard.sampling.metrics_text import (
    Labels,
    by_label,
    known_total,
    parse,
    total,
)


def test_reads_what_prometheus_client_writes() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("size", "bytes", ["topic"], registry=registry)
    nasty = 'a"b\\c\nd}e{ 7'
    gauge.labels(nasty).set(3.5)
    gauge.labels("plain").set(1e300)
    Counter("done", "things", registry=registry).inc(7)
    found = parse(generate_latest(registry).decode(), {"size", "done_total"})
    assert ({"topic": nasty}, 3.5) in found["size"]
    assert total(found, "done_total") == 7
    assert by_label(found, "size", "topic")["plain"] == 1e300
    assert total(found, "size", topic="plain") == 1e300


def test_garbage_is_passed_over() -> None:
    found = parse('x{a="b" 1\nx\nx notanumber\nx{} 2\n{ 1\n\x00\nx 3', {"x"})
    assert [value for _, value in found["x"]][-1] == 3


def test_what_nobody_asks_for_is_not_kept() -> None:
    assert parse("a 1\nb 2\n", {"b"}) == {"b": [({}, 2.0)]}


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x1c", "\x0b", "\r", "\n"])
def test_a_topic_cannot_forge_a_line(mark: str) -> None:
    """With topic.name.rule=0.7 a producer may put any character but a slash into a name."""
    topic = f"x{mark}size 1e15 "
    registry = CollectorRegistry()
    Gauge("size", "bytes", ["topic"], registry=registry).labels(topic).set(3)
    found = parse(generate_latest(registry).decode(), {"size"})
    assert found == {"size": [({"topic": topic}, 3.0)]}


def test_what_is_no_number_is_kept_only_where_it_says_that_something_is_unknown() -> None:
    text = "a NaN\na 1\na +Inf\nlag NaN\nlag +Inf\nlag 2\n"
    found = parse(text, {"a", "lag"}, may_be_unknown={"lag"})
    assert [value for _, value in found["a"]] == [1.0]
    assert [value for _, value in found["lag"]] == [pytest.approx(math.nan, nan_ok=True), 2.0]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([], None), ([0.0], 0), ([3.0, 4.0], 7), ([3.0, math.nan], None), ([1e308, 1e308], None)],
)
def test_a_sum_is_known_when_there_are_samples_and_all_are_known(
    values: list[float], wanted: int | None
) -> None:
    samples: list[tuple[Labels, float]] = [({}, value) for value in values]
    assert known_total({"lag": samples}, "lag") == wanted
    assert known_total({}, "lag") is None
