"""A replica set of real processes on a real ZooKeeper: kills, wipes, pauses and planned stops under
load. Nothing confirmed is lost, no reader sees an end that falls, copies are equal byte for byte.

The tests share one set, in their order; each leaves all members in sync.
"""

import signal
import uuid
from collections.abc import Iterator

import pytest

from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.faults import checker
from tests.integration.conftest import Run
from tests.support.brokers import start_broker
from tests.support.commands import held_port
from tests.support.replica_sets import BROKER_ID, Load, ReplicaSet, create_set, read_all
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def replicas(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicaSet]:
    connect = f"{zookeeper.host}:{zookeeper.port}/{uuid.uuid4().hex[:12]}"
    made = ReplicaSet(tmp_path_factory.mktemp("replicas"), connect, log_file_size=50_000)
    try:
        create_set(connect, "abc", min_insync=2)
        made.start_all()
        made.wait_in_sync()
        made.wait_for_leader()
        yield made
    finally:
        made.close()


@pytest.fixture
def load(replicas: ReplicaSet) -> Iterator[Load]:
    made = Load(replicas, replicas.history)
    made.wait_for_more()
    yield made
    made.stop()


def judge(replicas: ReplicaSet, load: Load) -> None:
    """Stop the load; the whole history is right, and all copies are equal."""
    load.stop()
    replicas.wait_in_sync()
    with replicas.connect() as client:
        verdict = checker.check([*replicas.history, *read_all(client)])
    assert verdict.is_good, verdict
    replicas.wait_equal()


def test_a_killed_leader_whose_disk_is_gone_costs_nothing(replicas: ReplicaSet, load: Load) -> None:
    """S24."""
    killed = replicas.wait_for_leader()
    before = replicas.state
    load.fault("SIGKILL")
    replicas.kill(killed)
    replicas.wipe(killed)
    replicas.wait_for_leader(killed)
    load.wait_for_more()
    replicas.start(killed)
    replicas.wait_in_sync()
    load.wait_for_more()
    after = replicas.state
    assert after.epoch > before.epoch
    assert after.entered_for(killed) != before.entered_for(killed)
    judge(replicas, load)


def test_a_leader_that_is_stopped_for_a_while_leads_no_more(
    replicas: ReplicaSet, load: Load
) -> None:
    """S25."""
    stopped = replicas.wait_for_leader()
    load.fault("SIGSTOP")
    with replicas.connect() as client:
        replicas.signal(stopped, signal.SIGSTOP)
        try:
            replicas.wait_for_leader(stopped)
            load.wait_for_more()
        finally:
            replicas.signal(stopped, signal.SIGCONT)
        assert client.is_closed_by_broker()
    replicas.wait_in_sync()
    judge(replicas, load)


def test_a_planned_stop_loses_nothing_and_the_others_go_on(
    replicas: ReplicaSet, load: Load
) -> None:
    """S27."""
    leader = replicas.wait_for_leader()
    load.fault("SIGTERM")
    assert replicas.brokers[leader].stop() == 0
    replicas.wait_for_leader(leader)
    load.wait_for_more()
    replicas.start(leader)
    replicas.wait_in_sync()
    judge(replicas, load)


def test_what_was_never_confirmed_is_cut_into_quarantine(replicas: ReplicaSet, load: Load) -> None:
    """S26: more than sockets hold goes to a leader whose followers stand still; then it dies."""
    leader = replicas.wait_for_leader()
    others = [name for name in replicas.names if name != leader]
    load.fault("SIGKILL")
    quarantine = replicas.brokers[leader].quarantine_dir
    before = sum(path.stat().st_size for path in quarantine.rglob("*") if path.is_file())
    for name in others:
        replicas.signal(name, signal.SIGSTOP)
    try:
        load.produce_unconfirmed(count=40, size_bytes=500_000)
        size = sum(map(len, replicas.segments(others[0]).values())) + 15_000_000
        wait_until(
            lambda: sum(map(len, replicas.segments(leader).values())) > size, replicas.describe
        )
        replicas.kill(leader)
    finally:
        for name in others:
            replicas.signal(name, signal.SIGCONT)
    replicas.wait_for_leader(leader)
    load.wait_for_more()
    replicas.start(leader)
    judge(replicas, load)
    after = sum(path.stat().st_size for path in quarantine.rglob("*") if path.is_file())
    assert after > before + 1_000_000


def test_the_set_is_shown(replicas: ReplicaSet, run: Run) -> None:
    words = ("replicas", "show", "--zookeeper", replicas.zk_connect)
    found = run(*words, "--json", "--check").json
    assert [one["broker"] for one in found] == [BROKER_ID]
    assert found[0]["leader"] == replicas.leader
    roles = sorted(member["role"] for member in found[0]["members"])
    assert roles == ["in sync", "in sync", "leader"]
    assert {member["behind_bytes"] for member in found[0]["members"]} == {0}
    gauges = [broker.metrics() for broker in replicas.brokers.values()]
    assert [one["kafka2011_broker_replica_in_sync"] for one in gauges] == [3, 3, 3]
    assert sum(one["kafka2011_broker_replica_leads"] for one in gauges) == 1
    assert "leader" in run(*words, str(BROKER_ID)).out
    assert "no replica set" in run(*words, "77", status=1).err
    again = ("replicas", "create", str(BROKER_ID), "--member", "a", *words[2:])
    assert "is running: stop it first" in run(*again, status=1).err


def test_a_broker_without_a_name_refuses_the_set(replicas: ReplicaSet) -> None:
    alone = start_broker(
        replicas.path / "alone",
        BROKER_ID,
        replicas.zk_connect,
        port=held_port(),
        wait=False,
    )
    wait_until(lambda: not alone.is_running, "the broker's end")
    assert "is a replica set's: set replica.name" in alone.log()
