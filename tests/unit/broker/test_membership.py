"""Replicas in one process, with real sockets and files: they find each other, confirm together,
and hand over. What kills do is in tests/integration/test_replication.py."""

import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka2011.broker.log import dump
from kafka2011.broker.log.segment import segment_name
from kafka2011.broker.process import STATUS_FAILED, CannotStart
from kafka2011.broker.replication import operator_changes
from kafka2011.broker.replication.leader import Leader
from kafka2011.coordination import paths
from kafka2011.protocol.requests import CopiesRequest, LineageRequest, encode_request
from kafka2011.protocol.responses import decode_lineage_response
from tests.faults import checker
from tests.support.brokers import RawClient
from tests.support.in_process_broker import in_process_broker
from tests.support.in_process_replicas import NAMES, STATE, Members
from tests.support.logs import manager
from tests.support.raw_requests import entry, fetch, offsets, produce
from tests.support.replica_sets import Load, read_all
from tests.support.waiting import wait_until


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Members]:
    made = Members(tmp_path, monkeypatch)
    yield made
    for name in list(made.running):
        made.stop(name)


def test_no_set_of_that_id(members: Members) -> None:
    with pytest.raises(CannotStart, match="broker 1 is no replica set: kafka2011 replicas create"):
        members.start("a")


def test_replicas_confirm_together_hand_over_and_copy_to_an_empty_directory(
    members: Members,
) -> None:
    members.begin()
    ends = []
    for _ in range(2):
        with members.connect() as client:
            for number in range(100):
                client.send(produce(b"t", entry(b"%d" % number + b"x" * 100)))
            ends.append(client.latest(b"t"))
        name = members.leader
        log_dir = members.running[name].log_dir
        members.stop(name)
        members.wait_in_sync()
        if len(ends) > 1:
            shutil.rmtree(log_dir)
        members.start(name)
        members.wait_in_sync()
    assert ends[1] == 2 * (ends[0] or 0)
    with members.connect() as client:
        assert client.latest(b"t") == ends[1]
        first = client.ask(fetch(b"t", 0))
        assert b"x" * 100 in first
    segments = [member.segments for member in members.running.values()]
    assert len(segments[0]) > 3
    assert segments[1] == segments[0] == segments[2]
    assert sum(len(data) for data in segments[0].values()) == ends[1]


def test_an_older_copy_of_a_directory_never_leads_however_often_it_is_started(
    members: Members, tmp_path: Path
) -> None:
    members.begin()
    log_dir, older = members.running["b"].log_dir, tmp_path / "older"
    members.stop("b")
    shutil.copytree(log_dir, older)
    members.start("b")
    members.wait_in_sync()
    with members.connect() as client:
        client.send(produce(b"t", entry(b"what the older copy lacks")))
        end = client.latest(b"t")
    for name in ("c", "b", "a"):
        members.stop(name)
    shutil.rmtree(log_dir)
    older.rename(log_dir)
    for _ in range(3):
        members.start("b")
        assert not members.running["b"].broker._gauges()["replica_whole"]
        members.stop("b")
    for name in NAMES:
        members.start(name)
    members.wait_in_sync()
    with members.connect() as client:
        assert client.latest(b"t") == end
    wait_until(
        lambda: all(one.broker._gauges()["replica_whole"] for one in members.running.values()),
        "it has everything again",
    )


def test_a_broker_that_was_alone_begins_a_set(members: Members, tmp_path: Path) -> None:
    with in_process_broker(tmp_path) as alone, alone.connect() as client:
        client.send(produce(b"t", entry(b"of before") * 100))
        end = client.latest(b"t")
    (tmp_path / "logs").rename(tmp_path / "a")
    (tmp_path / "a" / "not served-0").mkdir()
    members.begin()
    assert members.registry.children(paths.BROKER_TOPICS) == ["t"]
    with members.connect() as client:
        assert client.latest(b"t") == end
        assert client.ask(fetch(b"t", 0)).startswith(b"of before", 16)
    membership = members.running["b"].broker._membership
    assert membership is not None
    assert membership.replica is not None
    # That no leader wrote it is said: to say nothing would be to have let it go.
    assert membership.replica.lineage_of("t-0") == ((0, 0), (1, end))
    members.stop("a")
    (tmp_path / "a").rename(tmp_path / "logs")
    with pytest.raises(CannotStart, match="replica"), in_process_broker(tmp_path):
        pass


def test_a_member_that_was_cut_by_hand_does_not_lead_what_it_lost_away(members: Members) -> None:
    """The first to be started after a stop of all; the others would be cut to what it has."""
    members.begin()
    sent = b"".join(entry(b"message %d" % number) for number in range(8))
    with members.connect() as client:
        client.send(produce(b"t", sent))
        assert client.latest(b"t") == len(sent)
    segment = members.running["b"].log_dir / "t-0" / segment_name(0)
    for name in ("b", "c", "a"):
        members.stop(name)
    data = bytearray(sent)
    data[3 * len(entry(b"message 0")) + 12] ^= 1
    segment.write_bytes(data)
    assert dump.truncate_corrupt(segment)
    members.start("b")
    assert not members.running["b"].broker._gauges()["replica_whole"]
    for name in ("a", "c"):
        members.start(name)
    members.wait_in_sync()
    wait_until(
        lambda: all(list(one.segments.values()) == [sent] for one in members.running.values()),
        "all have everything",
    )


def test_a_member_with_another_brokers_directory_has_the_sets_messages_once_it_is_in_sync(
    members: Members, tmp_path: Path
) -> None:
    """Both were alone before, so that their bytes are of the same epoch."""
    for name, word in (("a", b"ours"), ("c", b"not of this set")):
        logs = manager(tmp_path / name)
        log = logs.get_or_create("t", 0)
        log.append(entry(word), 1, 0)
        log.flush()
        logs.close()
    members.begin()
    found = [list(member.segments.values()) for member in members.running.values()]
    assert found == [[entry(b"ours")]] * 3
    quarantine = members.running["c"].broker.logs.quarantine
    assert [path.read_bytes() for path in quarantine.rglob("*.kafka")] == [
        entry(b"not of this set")
    ]


def test_a_leader_whose_client_port_is_taken_ends_and_does_not_blame_its_disk(
    members: Members,
) -> None:
    members.begin()
    broker = members.running["b"].broker
    reading = members.node.read()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", broker._config.port))
        taken.listen()
        state, _ = operator_changes.with_leader(reading.state, reading.live, "b")
        members.node.write(reading.version, state)
        wait_until(lambda: broker.status, members.describe)
        assert broker.status == STATUS_FAILED
        members.stop("b")
        members.wait_in_sync()


def test_a_replica_that_leads_is_registered_once_its_address_is_shown(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that follows none is wanted. Both serve: the one clients, the other its set."""
    members.node.create(STATE)
    members.start("a")
    members.start("b")
    members.wait_in_sync()

    def gauges() -> list[tuple[float, float]]:
        found = [members.running[name].broker._gauges() for name in "ab"]
        return [(one["registered"], one["serving"]) for one in found]

    assert (members.leader, gauges()) == ("a", [(1, 1), (1, 1)])
    monkeypatch.setattr(Leader, "is_shown", False)
    assert gauges() == [(0, 1), (1, 1)]


def test_a_set_whose_state_no_member_takes_notice_of_counts_as_leaderless(members: Members) -> None:
    """ZooKeeper's data of before the leader's epoch was put back."""
    members.node.create(STATE)
    members.start("a")
    members.wait_in_sync()
    reading = members.node.read()
    assert members.running["a"].broker._gauges()["replica_leaderless"] == 0
    members.stop("a")
    members.node.write(members.node.read().version, replace(reading.state, epoch=0))
    members.start("a")
    wait_until(lambda: members.node.read().live, members.describe)
    gauges = members.running["a"].broker._gauges
    wait_until(lambda: gauges()["replica_leaderless"] == 1, lambda: str(gauges()))


def test_a_handover_under_load_loses_nothing(members: Members) -> None:
    members.begin()
    load = Load(members, [])
    for _ in range(2):
        load.wait_for_more()
        name = members.leader
        members.stop(name)
        members.wait_in_sync()
        load.wait_for_more()
        members.start(name)
        members.wait_in_sync()
    load.stop()
    with members.connect() as client:
        verdict = checker.check([*load.history, *read_all(client)])
    assert verdict.is_good, verdict


def test_a_planned_stop_hands_over_what_has_arrived(members: Members) -> None:
    """Also of clients that ask for no barrier, and what waits for a new segment."""
    members.node.create(STATE)
    for name in NAMES:
        members.start(name)
    members.wait_in_sync()
    sent = entry(b"x" * 1000)
    with members.connect() as client:
        client.send(produce(b"t", sent))
        assert client.latest(b"t") == len(sent)
        for _ in range(20):
            client.send(produce(b"t", sent))
        members.stop(members.leader)
    members.wait_in_sync()
    with members.connect() as client:
        assert client.latest(b"t") == 21 * len(sent)


def test_a_name_that_is_no_member(members: Members) -> None:
    members.node.create(STATE)
    with pytest.raises(CannotStart, match=r"replica\.name=d is not a member of the set: a, b, c"):
        members.start("d")


def test_copies_are_counted_whatever_is_confirmed(members: Members) -> None:
    members.begin()

    def ask(client: RawClient, count: int) -> bytes:
        return client.ask(encode_request(CopiesRequest(count)))

    with members.connect() as client:
        client.send(produce(b"t", entry(b"one")))
        for topic, found in (("t", ((1, 0),)), ("none", ())):
            lineage = client.ask(encode_request(LineageRequest(topic, 0)))
            assert decode_lineage_response(lineage[4:]) == found
        answers = [ask(client, count) for count in (1, 2, 3, 4)]
        assert [answer[4:6] for answer in answers] == [b"\0\0"] * 3 + [b"\xff\xff"]
        for name in set(NAMES) - {members.leader}:
            members.stop(name)
        client.send(produce(b"t", entry(b"two")))
        assert ask(client, 1)[4:6] == b"\0\0"
        # With min_insync 2 nothing is confirmed, and one disk is not two.
        with members.connect() as other:
            end = int.from_bytes(other.ask(offsets(b"t"))[10:18], "big")
            assert end == len(entry(b"one"))
        client.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            ask(client, 2)


def test_a_broker_that_is_no_replica_has_one_copy(tmp_path: Path) -> None:
    with in_process_broker(tmp_path) as alone, alone.connect() as client:
        client.send(produce(b"t", entry(b"one")))
        answers = [client.ask(encode_request(CopiesRequest(count))) for count in (1, 2)]
        assert [answer[4:6] for answer in answers] == [b"\0\0", b"\xff\xff"]
        lineage = client.ask(encode_request(LineageRequest("t", 0)))
        assert decode_lineage_response(lineage[4:]) == ()
        client.send(encode_request(CopiesRequest(0)))
        assert client.is_closed_by_broker()
