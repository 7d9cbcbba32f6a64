"""A replica set of real processes under load, each on a host of its own, through one fault after
another: its leader or a follower is killed, loses its disk, gets an older one back, stands still,
is stopped, hands over, is cut off from some of the others, or has a disk that hangs.

Beside the load, a consumer finds its broker as 0.7.2's does, goes on by itself, and gets every
message once, in order. The checker judges the whole history, and all copies are equal byte for byte
at the end. What it prints beside that: for how long no barrier was answered, by the kind of fault.
`make test` has a few faults with short times; a campaign (`make test-faults`) has the times of the
defaults, and a producer that keeps addresses as 0.7.2's does.
"""

import contextlib
import os
import random
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.checker import check
from tests.faults.disks import build
from tests.faults.kills import SEED, rounds
from tests.faults.takeovers import Means, Takeovers
from tests.support.commands import held_port
from tests.support.namespaces import hosts
from tests.support.original_clients import OriginalBrokers, OriginalConsumer
from tests.support.replica_sets import Host, Load, ReplicaSet, create_set, read_all
from tests.support.waiting import wait_until
from tests.support.zookeeper import start_zookeeper

pytestmark = pytest.mark.integration

NAMES = "abc"
# Three that tests/integration/test_replication.py has not.
USUAL = ("cut from ZooKeeper", "its disk hangs", "killed, older copy put back")
SHORT = {"replica_lag_max_ms": 2000, "replica_silence_ms": 4000}
DEFAULTS = {"zk_sessiontimeout_ms": 6000, "replica_registration_gap_ms": 2000}
PATIENCE_S = 1.0  # of clients with an answer
PAUSE_S = 0.02  # of clients between two requests: a campaign's history stays in memory


@contextlib.contextmanager
def members_hosts(path: Path) -> Iterator[tuple[dict[str, Host], Means]]:
    """Where the members run, and what can be broken there: as much as this machine permits."""
    library: Path | None = None
    with contextlib.suppress(pytest.skip.Exception):
        library = build(path)
    net = f"198.18.{os.getpid() % 256}"
    addresses = {name: f"{net}.{10 + number}" for number, name in enumerate(NAMES)}
    zookeeper = f"{net}.2"
    with contextlib.ExitStack() as stack:
        inside: dict[str, tuple[str, ...]] = {}
        try:
            inside = stack.enter_context(
                hosts(
                    {name: (f"{address}/24",) for name, address in addresses.items()},
                    here=(f"{net}.1/24", f"{zookeeper}/24"),
                )
            )
        except pytest.skip.Exception as reason:
            print(f"links are not cut: {reason}")
            addresses, zookeeper = dict.fromkeys(NAMES, "127.0.0.1"), ""
        yield (
            {
                name: Host(inside.get(name, ()), address, variables(library, path, name))
                for name, address in addresses.items()
            },
            Means(zookeeper, library is not None),
        )


def variables(library: Path | None, path: Path, name: str) -> dict[str, str]:
    if library is None:
        return {}
    return {"LD_PRELOAD": str(library), "SLOW_FILE": str(path / "replicas" / f"{name}.slow")}


def test_faults_one_after_another_lose_nothing(tmp_path: Path) -> None:
    count = rounds(usual=0)
    rng = random.Random(SEED)
    with (
        members_hosts(tmp_path) as (places, means),
        start_zookeeper(
            tmp_path / "zookeeper",
            bind_address=means.zookeeper or "127.0.0.1",
            client_port=held_port(),
        ) as zookeeper,
    ):
        connect = f"{zookeeper.host}:{zookeeper.port}/set"
        settings = DEFAULTS if count else SHORT
        replicas = ReplicaSet(
            tmp_path / "replicas", connect, NAMES, places, log_file_size=200_000, **settings
        )
        try:
            create_set(connect, NAMES, min_insync=2)
            replicas.start_all()
            replicas.wait_in_sync()
            replicas.wait_for_leader()
            patience = {"patience_s": PATIENCE_S, "pause_s": PAUSE_S}
            load = Load(replicas, replicas.history, **patience)
            with (
                OriginalConsumer(connect, replicas.history) as consumer,
                OriginalBrokers(connect, replicas.describe) as brokers,
            ):
                # Its producer needs the default's gap to notice that an address has gone.
                of_07 = Load(brokers, replicas.history, bool(count), **patience)
                takeovers = Takeovers(replicas, load, means, rng)
                usual = [kind for kind in USUAL if kind in takeovers.kinds]
                for kind in rng.choices(takeovers.kinds, k=count) or usual:
                    print(kind, flush=True)
                    takeovers.take(kind)
                    if count:
                        of_07.wait_for_more(1)
                of_07.stop()
                load.stop()
                judge(replicas, consumer)
                tell(takeovers)
        finally:
            replicas.close()


def judge(replicas: ReplicaSet, consumer: OriginalConsumer) -> None:
    replicas.wait_in_sync()
    with replicas.connect() as client:
        *final, end = read_all(client)
    verdict = check([*replicas.history, *final, end])
    print(verdict)
    assert verdict.is_good, f"{verdict}\nFAULT_SEED={SEED}"
    wait_until(
        lambda: consumer.problems or consumer.position == end["offset"],
        lambda: f"all consumed: {consumer.position} of {end['offset']}",
    )
    assert not consumer.problems, consumer.problems
    assert consumer.consumed == [event["id"] for event in final], "in order, each once"
    replicas.wait_equal()


def tell(takeovers: Takeovers) -> None:
    """How long no producer's barrier was answered."""
    every = takeovers.without_barrier_s
    every["all"] = [one for times in every.values() for one in times]
    for kind, times in every.items():
        print(
            f"{kind}: {len(times)} times, without a barrier for {min(times):.1f} to "
            f"{max(times):.1f} s, median {statistics.median(times):.1f} s"
        )
