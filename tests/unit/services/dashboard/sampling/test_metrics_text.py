"""The reader of /metrics against prometheus_client's own writer."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from kafka2011.services.dashboard.sampling.metrics_text import by_label, parse, total


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
