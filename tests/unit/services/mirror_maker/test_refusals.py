"""Sets and entries that a target refuses: cut smaller, down to one entry, which is named."""

from typing import Any

import pytest

from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.message_set import encode, encode_compressed
from kafka2011.services.mirror_maker.mirror_registry import read_left_out
from kafka2011.services.mirror_maker.set_cutting import fault_of
from tests.support.memory_zookeeper import InMemoryRegistry
from tests.support.waiting import wait_until
from tests.unit.services.mirror_maker.conftest import Clusters

LIMIT = 100_000
WRAPPER = encode_compressed([b"w" * 30_000], Codec.GZIP)  # about 70 bytes
BOMB = encode_compressed([b"w" * 2 * LIMIT], Codec.GZIP)
SNAPPY = encode_compressed([b"w" * 30_000], Codec.SNAPPY)
BROKEN = bytearray(encode([b"no gzip"]))
BROKEN[5] = Codec.GZIP  # which no CRC covers
PLAIN = encode([b"plain"])


@pytest.mark.parametrize("wrapper", [WRAPPER, SNAPPY], ids=["gzip", "snappy"])
def test_a_set_is_cut_by_what_it_unpacks_to(clusters: Clusters, wrapper: bytes) -> None:
    source, target = clusters.with_topics("t")
    target.unpacked_bytes_max = LIMIT
    source.logs["t", 0] += 100 * wrapper
    running = clusters.mirror(decompressed_bytes_max=LIMIT)
    clusters.wait_until_copied("t")
    assert (target.refusals, running.partition("t")["rewinds"]) == (0, 0)


def test_a_set_that_is_refused_is_halved_until_it_goes_through(clusters: Clusters) -> None:
    """The target's limit is smaller than the mirror's setting says."""
    source, target = clusters.with_topics("t", "other")
    target.unpacked_bytes_max = LIMIT
    source.logs["t", 0] += 50 * PLAIN + 40 * WRAPPER
    source.append("other", 0, [b"one"])
    running = clusters.mirror()
    clusters.wait_until_committed("other")
    clusters.wait_until_copied("t")
    assert running.partition("t")["refused_entry"] is None
    assert target.refusals < 30


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        pytest.param(BOMB, "unpacks to more than 100000", id="too much"),
        pytest.param(BROKEN, "does not unpack", id="broken"),
    ],
)
@pytest.mark.parametrize("rule", ["stop", "skip"])
def test_one_refused_entry_is_named_and_does_as_the_rule_says(
    clusters: Clusters, entry: bytes, reason: str, rule: str
) -> None:
    source, target = clusters.with_topics("t", "other")
    target.unpacked_bytes_max = LIMIT
    before, behind = 60 * WRAPPER + 20 * PLAIN, 5 * PLAIN + WRAPPER
    last = 20 * PLAIN  # what was not confirmed is copied again from there on
    source.logs["t", 0] += before + entry + behind
    source.append("other", 0, [b"one"])
    running = clusters.mirror(decompressed_bytes_max=LIMIT, refused_entry=rule)
    wait_until(lambda: running.partition("t")["refused_entries"] == 1, "it is met")
    clusters.wait_until_committed("other")
    found = running.partition("t")["refused_entry"]
    assert (found["offset"], found["bytes"]) == (len(before), len(entry))
    assert reason in found["reason"]
    admin = clusters.source.admin
    if rule == "stop":
        running.wait_for_state("t", "refused")
        assert str(len(before)) in running.partition("t")["trouble"]
        assert target.log("t").endswith(last)
        assert target.log("t").count(WRAPPER) >= 60
        assert read_left_out(admin, "mirror") == []
        target.unpacked_bytes_max = None  # another limit, or another broker: it goes on by itself
        clusters.wait_until_committed("t")
        assert target.log("t").endswith(last + entry + behind)
        assert running.partition("t")["left_out_entries"] == 0
    else:
        clusters.wait_until_committed("t")
        assert target.log("t").endswith(last + behind)
        assert target.log("t").count(WRAPPER) >= 61
        assert entry not in target.log("t")
        [row] = read_left_out(admin, "mirror")
        assert (row.topic, row.source, row.offset) == ("t", "1-0", len(before))
        assert running.partition("t")["left_out_entries"] == 1
    assert running.partition("t")["refused_entries"] == 1, "counted once"
    assert len(target.log("t")) < 2 * len(before + entry + behind), "what is before it comes twice"


def test_a_target_that_refuses_everything_makes_no_entry_step_aside(clusters: Clusters) -> None:
    """Its disk is full, say: nothing is wrong with the entries."""
    source, target = clusters.with_topics("t")
    target.refused = {"t"}
    source.logs["t", 0] += 2 * WRAPPER + PLAIN
    running = clusters.mirror(refused_entry="skip")
    wait_until(lambda: "alone" in (running.partition("t")["trouble"] or ""), "down to one entry")
    wait_until(lambda: running.partition("t")["rewinds"] > 6, "tried on")
    assert running.partition("t")["refused_entries"] == 0
    target.refused = set()
    clusters.wait_until_copied("t")


@pytest.mark.parametrize("rule", ["stop", "skip"])
def test_a_message_that_the_target_would_drop(clusters: Clusters, rule: str) -> None:
    source, target = clusters.with_topics("t")
    before = encode([b"small"] * 20)
    large, behind = encode([b"L" * 2000]), encode([b"small"])
    source.logs["t", 0] += before + large + behind
    running = clusters.mirror(message_bytes_max=1000, refused_entry=rule)
    if rule == "stop":
        running.wait_for_state("t", "refused")
        assert target.log("t") == before, "all that is before it is copied"
    else:
        clusters.wait_until_committed("t")
        assert target.log("t") == before + behind
        assert [row.offset for row in read_left_out(clusters.source.admin, "mirror")] == [
            len(before)
        ]
    assert running.partition("t")["refused_entry"]["offset"] == len(before)


def test_nothing_is_left_out_before_it_is_recorded(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, attempts = InMemoryRegistry.put, []

    def failing(registry: InMemoryRegistry, path: str, *rest: Any) -> int:
        if "/refused/" in path:
            attempts.append(path)
            if len(attempts) < 3:
                raise CoordinationUnavailable("no answer")
        return put(registry, path, *rest)

    monkeypatch.setattr(InMemoryRegistry, "put", failing)
    source, target = clusters.with_topics("t")
    target.unpacked_bytes_max = LIMIT
    source.logs["t", 0] += BOMB + PLAIN
    running = clusters.mirror(decompressed_bytes_max=LIMIT, refused_entry="skip")
    clusters.wait_until_committed("t")
    assert (len(attempts), target.log("t")) == (3, PLAIN)
    assert len(read_left_out(clusters.source.admin, "mirror")) == 1
    assert running.partition("t")["refused_entries"] == 1


def test_a_record_that_is_garbage_is_begun_anew(clusters: Clusters) -> None:
    source, target = clusters.with_topics("t")
    target.unpacked_bytes_max = LIMIT
    source.logs["t", 0] += BOMB + PLAIN
    clusters.source.admin.put("/kafka2011/mirrors/mirror/refused/t/1-0", b"garbage")
    clusters.mirror(decompressed_bytes_max=LIMIT, refused_entry="skip")
    clusters.wait_until_committed("t")
    assert [row.offset for row in read_left_out(clusters.source.admin, "mirror")] == [0]
    assert target.log("t") == PLAIN


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (PLAIN, ""),
        (WRAPPER, ""),
        (SNAPPY, ""),
        (BOMB, "unpacks to more"),
        (BROKEN, "does not unpack"),
        (encode([b"L" * 2001]), "2001"),
    ],
)
def test_why_a_broker_with_these_limits_refuses_an_entry(entry: bytes, expected: str) -> None:
    found = fault_of(entry, message_bytes_max=2000, decompressed_bytes_max=LIMIT)
    assert expected in found if expected else not found
