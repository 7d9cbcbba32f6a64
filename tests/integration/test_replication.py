"""A replica set of real processes on a real ZooKeeper: kills, wipes, pauses and planned stops under
load. Nothing confirmed is lost, no reader sees an end that falls, copies are equal byte for byte.

The tests share one set, in their order; each leaves all members in sync.
"""

import contextlib
import signal
import time
import uuid
from collections.abc import Iterator

import pytest

from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.conftest import Run
from tests.faults import checker
from tests.support.brokers import start_broker
from tests.support.replica_sets import BROKER_ID, Load, ReplicaSet, create_set, read_all
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

UNCONFIRMED_BYTES_MAX = 30_000_000
SET_BYTES = 500_000
TAKEOVERS = 3  # session timeouts: a takeover takes one, and some ms


@pytest.fixture(scope="module")
def replicas(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicaSet]:
    connect = f"{zookeeper.host}:{zookeeper.port}/{uuid.uuid4().hex[:12]}"
    made = ReplicaSet(
        tmp_path_factory.mktemp("replicas"),
        connect,
        log_file_size=50_000,
        replica_unconfirmed_bytes_max=UNCONFIRMED_BYTES_MAX,
    )
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


def test_a_follower_whose_disk_is_full_leaves_and_comes_back(
    replicas: ReplicaSet, load: Load
) -> None:
    """S28."""
    leader = replicas.wait_for_leader()
    full = next(name for name in replicas.names if name != leader)
    load.fault("full disk")
    with replicas.without_room(full):
        replicas.wait_in_sync(replicas.names.replace(full, ""))
        load.wait_for_more()
    replicas.wait_in_sync()
    assert "replica_has_no_room" in replicas.brokers[full].log()
    assert replicas.brokers[full].is_running
    load.stop()


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


def test_a_leader_alone_takes_a_bounded_amount_and_confirms_it_when_others_are_back(
    replicas: ReplicaSet, load: Load
) -> None:
    """S29."""
    leader = replicas.wait_for_leader()
    load.fault("SIGKILL")
    for name in replicas.names.replace(leader, ""):
        replicas.kill(name)
    replicas.wait_in_sync(leader)
    broker = replicas.brokers[leader]
    closed = 'kafka2011_broker_connections_closed_total{reason="unconfirmed"}'
    with contextlib.suppress(ConnectionError):  # the sets that it refuses may find it closed
        load.produce_unconfirmed(2 * UNCONFIRMED_BYTES_MAX // SET_BYTES, SET_BYTES)
    wait_until(lambda: broker.metrics().get(closed), broker.log)
    unconfirmed = broker.metrics()["kafka2011_broker_replica_unconfirmed_bytes"]
    assert UNCONFIRMED_BYTES_MAX < unconfirmed < 1.5 * UNCONFIRMED_BYTES_MAX
    for name in replicas.names.replace(leader, ""):
        replicas.start(name)
    replicas.wait_in_sync()
    load.wait_for_more()
    judge(replicas, load)


def assert_none_leads(replicas: ReplicaSet) -> None:
    """For longer than a takeover takes, from when the session of the last leader has ended."""
    wait_until(lambda: replicas.leader is None, replicas.describe)
    begun_s, looked_s = time.monotonic(), TAKEOVERS * replicas.session_ms / 1000
    wait_until(
        lambda: replicas.leader or time.monotonic() - begun_s > looked_s, "the end of the look"
    )
    assert replicas.leader is None, replicas.describe()


def test_a_member_that_left_before_the_last_confirmations_never_leads(
    replicas: ReplicaSet, load: Load
) -> None:
    """S33: it is the only one that runs; the one that has everything comes later."""
    leader = replicas.wait_for_leader()
    early, late = replicas.names.replace(leader, "")
    load.fault("SIGKILL")
    replicas.kill(early)
    replicas.wait_in_sync(leader + late)
    load.wait_for_more()
    replicas.kill(late)
    replicas.wait_in_sync(leader)
    replicas.kill(leader)
    replicas.wipe(leader)
    replicas.start(early)
    assert_none_leads(replicas)
    replicas.start(late)
    assert replicas.wait_for_leader() == late
    replicas.start(leader)
    replicas.wait_in_sync()
    load.wait_for_more()
    judge(replicas, load)


def test_empty_disks_never_lead_though_they_are_most(replicas: ReplicaSet, load: Load) -> None:
    """S34: all members are killed at once, and all but one lose their disks."""
    leader = replicas.wait_for_leader()
    others = replicas.names.replace(leader, "")
    load.fault("SIGKILL")
    for name in replicas.names:
        replicas.kill(name)
    for name in others:
        replicas.wipe(name)
        replicas.start(name)
    assert_none_leads(replicas)
    replicas.start(leader)
    assert replicas.wait_for_leader() == leader
    replicas.wait_in_sync()
    load.wait_for_more()
    judge(replicas, load)


def test_a_leader_is_replaced_by_a_new_member_under_load(
    replicas: ReplicaSet, load: Load, run: Run
) -> None:
    """S32: interrupted, the move goes on."""
    old = replicas.wait_for_leader()
    words = ("replicas", "move", str(BROKER_ID), "--from", old, "--to", "d")
    words = (*words, "--zookeeper", replicas.zk_connect)
    waiting = run(*words, "--wait", "0.1", status=1)
    assert "d waits for its broker: start it" in waiting.err
    load.fault("move")
    replicas.start_in_place_of(old, "d")
    moved = run(*words, "--json").json
    assert sorted(moved["members"]) == sorted(replicas.names)
    assert replicas.brokers.pop(old).stop() == 0
    load.wait_for_more()
    judge(replicas, load)


def test_the_set_is_shown(replicas: ReplicaSet, run: Run) -> None:
    words = ("replicas", "show", "--zookeeper", replicas.zk_connect)

    def shown() -> tuple[object, ...]:
        """Status, leader, and each member's role and bytes behind."""
        done = run(*words, "--json", "--check", status=None)
        assert [one["broker"] for one in done.json] == [BROKER_ID]
        members = done.json[0]["members"]
        found = sorted(((one["role"], one["behind_bytes"]) for one in members), key=str)
        return (done.status, done.json[0]["leader"], *found)

    def gauges(name: str) -> list[float]:
        found = [broker.metrics() for broker in replicas.brokers.values()]
        return sorted(one[f"kafka2011_broker_replica_{name}"] for one in found)

    # On a busy machine a member's session may end at any time, and another leads.
    roles = (("in sync", 0), ("in sync", 0), ("leader", 0))
    wait_until(lambda: shown() == (0, replicas.leader, *roles), lambda: f"all of it: {shown()}")
    wait_until(lambda: gauges("in_sync") == [3, 3, 3], lambda: f"gauges: {gauges('in_sync')}")
    wait_until(lambda: gauges("leads") == [0, 0, 1], lambda: f"gauges: {gauges('leads')}")
    assert "leader" in run(*words, str(BROKER_ID)).out
    assert "no replica set" in run(*words, "77", status=1).err
    again = ("replicas", "create", str(BROKER_ID), "--member", "a", *words[2:])
    assert "is running: stop it first" in run(*again, status=1).err


def test_a_broker_without_a_name_refuses_the_set(replicas: ReplicaSet) -> None:
    path = replicas.path / "alone"
    with start_broker(path, BROKER_ID, replicas.zk_connect, wait=False) as alone:
        alone.wait()
        assert "is a replica set's: set replica.name" in alone.log()
