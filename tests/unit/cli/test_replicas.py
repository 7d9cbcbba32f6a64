"""`kafka2011 replicas` on a set that runs: what each command changes, refuses, and says."""

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.broker.log import replica_journal
from kafka2011.broker.log.segment import segment_name
from kafka2011.broker.replica import peer_calls
from kafka2011.broker.replica.set_node import LiveReplica, SetNode
from kafka2011.broker.replication.machine import Canvassing
from kafka2011.broker.replication.set_state import SetState
from kafka2011.cli import replica_changes
from kafka2011.coordination import paths
from kafka2011.coordination.errors import CoordinationUnavailable, VersionConflict
from kafka2011.coordination.paths import BrokerAddress
from tests.conftest import Done, Run
from tests.support.in_process_replicas import BROKER_ID, NAMES, Members
from tests.support.memory_zookeeper import InMemoryZooKeeper
from tests.support.raw_requests import entry, produce
from tests.support.replica_sets import unclean_records
from tests.support.waiting import wait_until


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Members]:
    made = Members(tmp_path, monkeypatch)
    yield made
    for name in list(made.running):
        made.stop(name)


@pytest.fixture
def replicas(members: Members, run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """`kafka2011 replicas WORDS` on three running members of broker 1, all in sync."""
    monkeypatch.setattr(
        "kafka2011.cli.connections.ZooKeeperRegistry", lambda *_, **__: members.zookeeper.client()
    )
    monkeypatch.setattr("kafka2011.runtime.logs.configure", lambda *_, **__: None)
    members.begin()
    return lambda *words: run("replicas", *words, "--zookeeper", "memory:1")


def test_commands_hand_over_and_change_members(
    members: Members, replicas: Callable[..., Done]
) -> None:
    assert "lacking" in replicas("handover", 1, "--to", "lacking").err
    assert replicas("handover", 1, "--to", "b").out == "broker 1: b leads, epoch 2\n"
    assert "hand over first" in replicas("members", 1, "--remove", "b").err
    assert json.loads(replicas("handover", 1, "--json").out)["leader"] == "a"
    members.wait_in_sync()
    changed = replicas("members", 1, "--add", "d", "--remove", "c", "--prefer", "b", "--json")
    assert json.loads(changed.out)["members"] == ["b", "a", "d"]
    members.stop("c")
    members.start("d")
    members.wait_in_sync()
    assert replicas("min-insync", 1, 3).status == 0
    wait_until(lambda: members.node.read().state.min_insync == 3, members.describe)
    assert "could not confirm" in replicas("members", 1, "--remove", "d").err
    assert replicas("show", "--check").status == 0
    refused = replicas("elect", 1, "d", "--unclean")
    assert (refused.status, "takes over by itself" in refused.err) == (1, True)
    planned = json.loads(
        replicas("plan", "--machine", "m2=r2", "--without", "127.0.0.1", "--json").out
    )
    assert [one["machine"] for one in planned["moves"]] == ["m2"]
    assert len(planned["notes"]) == 2
    assert "NAME=RACK" in replicas("plan", "--machine", "m2").err
    assert "no member is there" in replicas("plan", "--without", "m7").err
    assert replicas("plan").out == "nothing to move\n"
    # The leader is replaced; interrupted, the same command goes on.
    old = members.leader
    moved = ("move", 1, "--from", old, "--to", "e")
    waiting = replicas(*moved, "--wait", 0.1)
    assert (waiting.status, "e waits for its broker" in waiting.err) == (1, True)
    members.start("e")
    assert "e" in json.loads(replicas(*moved, "--json").out)["members"]
    assert old not in dict(members.node.read().state.members)
    members.stop(old)
    members.wait_in_sync()
    assert replicas(*moved).status == 0
    assert (
        "x is no member, or no more; e is one"
        in replicas("move", 1, "--from", "x", "--to", "e").out
    )
    kept = next(name for name in members.running if name != "e")
    refused = replicas("move", 1, "--from", kept, "--to", "e")
    assert (refused.status, "one copy less" in refused.err) == (1, True)
    assert "neither x nor y is a member" in replicas("move", 1, "--from", "x", "--to", "y").err


def test_a_set_whose_leader_lets_no_client_in_is_not_well(
    members: Members, replicas: Callable[..., Done]
) -> None:
    """Each member is in sync, and says so."""
    assert replicas("show", "--check").status == 0
    path = paths.broker_id_path(BROKER_ID)
    address = members.address
    shown = f"{address[0]}:{address[1]}" if address else ""
    assert json.loads(replicas("show", "--json").out)[0]["address"] == shown
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    members.registry.put(path, paths.encode_broker("127.0.0.1", port, 0))
    found = replicas("show", "--check")
    assert (found.status, f"127.0.0.1:{port} refuses clients" in found.out) == (1, True)
    members.registry.delete(path)
    found = replicas("show", "--check")
    assert (found.status, "clients are shown no address" in found.out) == (1, True)
    assert found.err == "kafka2011: broker 1: clients are shown no address\n"


def test_the_check_names_a_member_that_does_not_answer(
    members: Members, replicas: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For some seconds one that has died, or hangs, is in sync by what ZooKeeper has."""
    follower = next(name for name in members.running if name != members.leader)
    reading = members.node.read()
    silent = reading.live[dict(reading.state.members)[follower]].address
    monkeypatch.setattr(
        "kafka2011.broker.replica.report.canvass",
        lambda at, greeting: None if at == silent else peer_calls.canvass(at, greeting),
    )
    found = replicas("show", "--check")
    assert (found.status, found.err) == (
        1,
        f"kafka2011: broker 1: {follower} does not answer\n",
    )
    assert replicas("show").status == 0
    members.stop(follower)
    wait_until(lambda: "is away" in replicas("show", "--check").err, "it is away")


def test_a_set_that_cannot_be_read_hides_no_other(
    members: Members, replicas: Callable[..., Done]
) -> None:
    for broker_id, value in ((0, b"[]"), (5, b"[]")):
        members.registry.put(paths.replica_state_path(broker_id), value)
    members.registry.ensure(paths.replica_live_root(7))  # it has no state
    found = replicas("show")
    assert found.status == 1
    assert found.out.startswith("broker 1: epoch 1, leader a")
    assert found.err.splitlines() == [
        "kafka2011: the replica set of broker 0 cannot be read: not JSON of version 1: b'[]'",
        "kafka2011: the replica set of broker 5 cannot be read: not JSON of version 1: b'[]'",
        "kafka2011: broker 7 is no replica set: kafka2011 replicas create 7",
    ]
    found = replicas("show", "--json")
    assert (found.status, [one["broker"] for one in json.loads(found.out)]) == (1, [1])
    found = replicas("show", 5)
    assert (found.status, found.out, found.err.count("broker 5")) == (1, "", 1)
    assert "broker 0 cannot be read" in replicas("plan").err  # a plan needs all


def fill(members: Members) -> None:
    """Send some segments, and wait until all have them."""
    with members.connect() as client:
        for number in range(60):
            client.send(produce(b"t", entry(b"%d" % number + b"x" * 100)))
        assert client.latest(b"t")
    wait_until(lambda: len({str(one.segments) for one in members.running.values()}) == 1, "copies")


def test_a_newest_segment_that_is_gone_from_a_disk_is_named(
    members: Members, replicas: Callable[..., Done]
) -> None:
    """Retention removes every other one, and leaves it."""
    fill(members)
    lacking = next(name for name in NAMES if name != members.leader)
    max(members.running[lacking].log_dir.rglob("*.kafka")).unlink()
    looked = replicas("verify", 1)
    assert (looked.status, lacking in looked.out, "is gone" in looked.out) == (1, True, True)
    assert f"{lacking} copies everything again" in replicas("verify", 1, "--heal").out


@pytest.mark.parametrize("is_written", [False, True])
def test_an_unclean_election_whose_answer_was_lost_is_asked_for_again(
    is_written: bool, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = InMemoryZooKeeper().client()
    registry.start()
    monkeypatch.setattr("kafka2011.cli.connections.ZooKeeperRegistry", lambda *_, **__: registry)
    monkeypatch.setattr(registry, "close", lambda: None)
    monkeypatch.setattr("kafka2011.runtime.logs.configure", lambda *_, **__: None)
    ends = {"t-0": 100}
    monkeypatch.setattr(replica_changes, "ask_all", lambda *_: {"B": Canvassing(5, ends, {})})
    node = SetNode(registry, BROKER_ID)
    node.create(SetState(5, "A", frozenset({"A"}), frozenset(), 1, (("a", "A"), ("b", "B"))))
    node.go_live("B", LiveReplica("b", BrokerAddress("127.0.0.1", 1), 1))
    commit, late = registry.commit, []

    def lost(*asked: Any) -> None:
        late.append(asked)
        if is_written:
            commit(*asked)
        raise CoordinationUnavailable("ConnectionLoss")

    words = ("replicas", "elect", BROKER_ID, "b", "--unclean", "--confirm", "1-5")
    words = (*words, "--zookeeper", "memory:1")
    monkeypatch.setattr(registry, "commit", lost)
    first = run(*words)
    assert (first.status, "may have been written: run this again" in first.err) == (1, True)
    # Where the election does not stand, nothing says that there was one.
    assert bool(unclean_records(registry, BROKER_ID)) == is_written
    monkeypatch.setattr(registry, "commit", commit)
    ends["t-0"] = 90
    again = run(*words)
    if is_written:
        assert (again.status, "takes over by itself" in again.err) == (1, True)
    else:
        assert again.status == 0, again.err
        with pytest.raises(VersionConflict):  # what comes late stands no more
            commit(*late[0])
    [record] = unclean_records(registry, BROKER_ID)
    assert record.ends == {"t-0": 100 if is_written else 90}
    assert node.read().state.isr == {"B"}


def test_what_stands_behind_a_damaged_length_is_not_salvaged_in_silence(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.runtime.logs.configure", lambda *_, **__: None)
    piece = tmp_path / "cut-000001" / "t-0" / segment_name(0)
    piece.parent.mkdir(parents=True)
    data = bytearray(b"".join(entry(b"message %d" % number) for number in range(8)))
    size = len(data) // 8
    data[3 * size] = 0x80
    piece.write_bytes(data)
    found = run("replicas", "salvage", tmp_path / "cut-000001")
    assert found.status == 1
    assert "3" in found.out
    assert f"{5 * size} bytes from a damaged length on could not be read" in found.err


def test_a_flipped_bit_is_named_and_its_copy_made_anew(
    members: Members, replicas: Callable[..., Done], run: Run
) -> None:
    fill(members)
    found = json.loads(replicas("verify", 1, "--json").out)
    assert (found["members"], found["damages"], found["silent"]) == (["a", "b", "c"], [], [])
    assert found["compared_bytes"] > 5000

    def flip(name: str) -> Path:
        first = min(members.running[name].log_dir.rglob("*.kafka"))
        data = bytearray(first.read_bytes())
        data[300] ^= 1
        first.write_bytes(data)
        return first

    damaged = next(name for name in NAMES if name != members.leader)
    flip(damaged)
    looked = replicas("verify", 1)
    assert (looked.status, damaged in looked.out, "fails its check" in looked.out) == (
        1,
        True,
        True,
    )
    directory = members.node.read().state.entered_for(damaged)
    assert f"{damaged} copies everything again" in replicas("verify", 1, "--heal").out
    wait_until(lambda: len({str(one.segments) for one in members.running.values()}) == 1, "a copy")
    wait_until(lambda: directory in members.node.read().state.isr, members.describe)
    assert replicas("verify", 1).status == 0
    quarantine = next(members.running[damaged].broker.logs.quarantine.glob("cut-*"))
    salvaged = run("replicas", "salvage", quarantine)
    # All but the damaged one, in order or not.
    assert (salvaged.status, "59" in salvaged.out) == (1, True)
    assert "1 entries could not be read" in salvaged.err
    flip(members.leader)
    refused = replicas("verify", 1, "--heal")
    assert "the leader's copy is damaged: kafka2011 replicas handover 1" in refused.err


def test_an_unclean_election_says_what_is_lost_and_is_recorded(
    members: Members, replicas: Callable[..., Done]
) -> None:
    with members.connect() as client:
        client.send(produce(b"t", entry(b"of all")))
        end = client.latest(b"t")
    left = next(name for name in NAMES if name != members.leader)
    others = [name for name in NAMES if name != left]
    log_dir = members.running[left].log_dir
    members.stop(left)
    members.wait_in_sync()
    with members.connect() as client:
        client.send(produce(b"t", entry(b"of two")))
        assert (client.latest(b"t") or 0) > (end or 0)
    gone = members.running[others[0]].log_dir
    leader = members.leader
    for name in sorted(others, key=lambda name: name == leader):
        members.stop(name)
        wait_until(lambda: len(members.node.read().state.isr) == 1, members.describe)
    members.start(left)
    wait_until(lambda: members.node.read().live, "its session")
    asked = replicas("elect", 1, left, "--unclean")
    assert (asked.status, "of two" in asked.out, "t-0" in asked.out) == (1, False, True)
    word = asked.err.split()[-1]
    assert replicas("elect", 1, left, "--unclean", "--confirm", "1-0").status == 2
    assert replicas("elect", 1, left, "--unclean", "--confirm", word).status == 0
    wait_until(lambda: members.node.read().state.leader, members.describe)
    [record] = unclean_records(members.registry, BROKER_ID)
    state = members.node.read().state
    assert (record.epoch, record.elected, record.ends) == (state.epoch, left, {"t-0": end})
    assert set(record.gone.values()) <= set(others)
    # With min_insync 2 nothing is confirmed alone; another one that returns is cut to this copy.
    members.start(others[0])
    wait_until(lambda: len(members.node.read().state.isr) == 2, members.describe)
    wait_until(lambda: members.address, members.describe)
    with members.connect() as client:
        assert client.latest(b"t") == end
        client.send(produce(b"t", entry(b"of now")))
        assert client.latest(b"t") == 2 * (end or 0)
    assert all(b"of two" not in path.read_bytes() for path in gone.rglob("*.kafka"))
    assert log_dir != gone


def test_a_set_whose_zookeeper_was_put_back_goes_on_with_an_elected_member(
    members: Members, replicas: Callable[..., Done]
) -> None:
    """No member takes notice of the older state, though each that it names runs."""
    older = members.registry.get(members.node.path)
    assert older
    assert replicas("handover", 1, "--to", "b").status == 0
    members.wait_in_sync()
    with members.connect() as client:
        client.send(produce(b"t", entry(b"since")))
        end = client.latest(b"t")
    for name in NAMES:
        members.stop(name)
    members.registry.put(members.node.path, older.value)
    for name in NAMES:
        members.start(name)
    wait_until(lambda: len(members.node.read().live) == 3, members.describe)
    asked = replicas("elect", 1, "b", "--unclean")
    assert (asked.status, "an older ZooKeeper was put back" in asked.out) == (1, True), asked.err
    assert replicas("elect", 1, "b", "--unclean", "--confirm", asked.err.split()[-1]).status == 0
    members.wait_in_sync()
    with members.connect() as client:
        assert client.latest(b"t") == end
    [record] = unclean_records(members.registry, BROKER_ID)
    assert (record.elected, set(record.gone.values())) == ("b", {"a", "c"})


def test_a_set_of_which_backups_alone_are_left_begins_with_one_of_them(
    members: Members, replicas: Callable[..., Done], tmp_path: Path
) -> None:
    with members.connect() as client:
        client.send(produce(b"t", entry(b"in the backups")))
        end = client.latest(b"t")
    for name in NAMES:
        members.stop(name)
        shutil.copytree(tmp_path / name, tmp_path / "backups" / name)
    for name in NAMES:
        members.start(name)
    members.wait_in_sync()
    with members.connect() as client:
        client.send(produce(b"t", entry(b"lost")))
        assert client.latest(b"t")
    for name in NAMES:
        members.stop(name)
        shutil.rmtree(tmp_path / name)
        (tmp_path / "backups" / name).rename(tmp_path / name)
    members.start("b")
    refused = replicas("elect", 1, "b", "--unclean")
    assert "everything that is confirmed" in refused.err
    members.stop("b")
    (tmp_path / "b" / replica_journal.NAME).unlink()
    members.start("b")
    wait_until(
        lambda: members.node.read().state.entered_for("b") in members.node.read().live, "it is new"
    )
    asked = replicas("elect", 1, "b", "--unclean")
    assert replicas("elect", 1, "b", "--unclean", "--confirm", asked.err.split()[-1]).status == 0
    for name in ("a", "c"):
        members.start(name)
    members.wait_in_sync()
    with members.connect() as client:
        assert client.latest(b"t") == end
