"""A replica set of real processes under load, each on a host of its own, through one fault after
another: its leader or some others are killed, lose their disks, get older ones back, stand still,
are stopped, hand over, are cut off from some of the others, or have disks that hang, fail or are
full.

Beside the load, a consumer finds its broker as 0.7.2's does, goes on by itself, and gets every
message once, in order. The checker judges the whole history, no two processes have led in one
epoch, and all copies are equal byte for byte at the end. What it prints beside that: for how long
no barrier was answered, by the kind of fault.

`make test` has a few faults with short times. A campaign (`make test-takeovers ROUNDS=n`) has the
times of the defaults, a producer that keeps addresses as 0.7.2's does, our own with
request.required.acks=-1, and producers to ever new partitions; with TIMES=short it has more
takeovers an hour, and no such old producer, which needs the default's gap. KINDS="a;b" names the
kinds, else all come in turn; MIN=1 has one member confirm alone.
"""

import contextlib
import itertools
import os
import random
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import check
from tests.faults.disks import build
from tests.faults.kills import SEED, rounds
from tests.faults.takeovers import Means, Takeovers
from tests.support.commands import held_port
from tests.support.namespaces import hosts
from tests.support.original_clients import OriginalBrokers, OriginalConsumer
from tests.support.our_producer import OurProducer
from tests.support.replica_sets import Host, Load, ReplicaSet, Target, create_set, read_all
from tests.support.waiting import wait_until
from tests.support.zookeeper import start_zookeeper

pytestmark = pytest.mark.integration

NAMES = "abc"
# Three that tests/integration/test_replication.py has not.
USUAL = ("cut from ZooKeeper", "its disk hangs", "killed, older copy put back")
SHORT = {"replica_lag_max_ms": 2000, "replica_silence_ms": 4000}
KINDS = [kind for kind in os.environ.get("FAULT_KINDS", "").split(";") if kind]
MIN_INSYNC = int(os.environ.get("FAULT_MIN_INSYNC", "2"))
HAS_SHORT_TIMES = os.environ.get("FAULT_TIMES") == "short"
DISK_BYTES = 500_000_000
# Of a topic of its own: a producer's connection goes to the next one after three barriers.
MANY = Target(b"many", partitions=100, first=1, barriers_max=3)
DEFAULTS = {"zk_sessiontimeout_ms": 6000, "replica_registration_gap_ms": 2000}
PATIENCE_S = 1.0  # of clients with an answer
PAUSE_S = 0.02  # of clients between two requests: a campaign's history stays in memory


@contextlib.contextmanager
def members_disks(path: Path, names: str) -> Iterator[dict[str, Path]]:
    """A small file system of each member's own, where it may be mounted here."""
    with contextlib.ExitStack() as stack:
        disks = {}
        for name in names:
            disk = path / "disks" / name
            disk.mkdir(parents=True)
            size = f"size={DISK_BYTES}"
            mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)]
            if subprocess.run(mount, check=False).returncode == 0:
                disks[name] = disk
                stack.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
        yield disks


@contextlib.contextmanager
def members_hosts(path: Path, own_disks: str) -> Iterator[tuple[dict[str, Host], Means]]:
    """Where the members run, and what can be broken there: as much as this machine permits.
    `own_disks`: whose directories are in file systems of their own."""
    library: Path | None = None
    with contextlib.suppress(pytest.skip.Exception):
        library = build(path)
    net = f"198.18.{os.getpid() % 256}"
    addresses = {name: f"{net}.{10 + number}" for number, name in enumerate(NAMES)}
    zookeeper = f"{net}.2"
    at = {**addresses, "zookeeper": zookeeper}
    with contextlib.ExitStack() as stack:
        inside: dict[str, tuple[str, ...]] = {}
        try:
            inside = stack.enter_context(
                hosts(
                    {name: (f"{address}/24",) for name, address in at.items()},
                    here=(f"{net}.1/24",),
                )
            )
        except pytest.skip.Exception as reason:
            print(f"links are not cut: {reason}")
            addresses = dict.fromkeys(NAMES, "127.0.0.1")
        disks = stack.enter_context(members_disks(path, own_disks))
        yield (
            {
                name: Host(
                    inside.get(name, ()), address, variables(library, path, name), disks.get(name)
                )
                for name, address in addresses.items()
            },
            Means(
                Host(inside["zookeeper"], zookeeper) if inside else None,
                library is not None,
                len(disks) == len(NAMES),
            ),
        )


def variables(library: Path | None, path: Path, name: str) -> dict[str, str]:
    if library is None:
        return {}
    files = {"SLOW_FILE": f"{name}.slow", "FAIL_FILE": f"{name}.fail"}
    places = {variable: str(path / "replicas" / file) for variable, file in files.items()}
    return {"LD_PRELOAD": str(library), **places}


def in_turn(kinds: list[str], count: int, rng: random.Random) -> Iterator[str]:
    """Each as often as the others, in no order."""
    rounds_of = (rng.sample(kinds, len(kinds)) for _ in itertools.count())
    return itertools.islice(itertools.chain.from_iterable(rounds_of), count)


def test_faults_one_after_another_lose_nothing(tmp_path: Path) -> None:
    count = rounds(usual=0)
    rng = random.Random(SEED)
    with (
        members_hosts(tmp_path, NAMES if count else "") as (places, means),
        start_zookeeper(
            tmp_path / "zookeeper",
            inside=means.zookeeper.inside if means.zookeeper else (),
            address=means.zookeeper.address if means.zookeeper else "",
            client_port=held_port(),
        ) as zookeeper,
    ):
        connect = f"{zookeeper.host}:{zookeeper.port}/set"
        replicas = ReplicaSet(
            tmp_path / "replicas",
            connect,
            NAMES,
            places,
            log_file_size=200_000,
            topic_partition_count_map=f"many:{MANY.partitions}",
            **(DEFAULTS if count and not HAS_SHORT_TIMES else SHORT),
        )
        try:
            create_set(connect, NAMES, MIN_INSYNC)
            replicas.start_all()
            replicas.wait_in_sync()
            replicas.wait_for_leader()
            with loads(replicas, bool(count)) as (load, consumer, others):
                takeovers = Takeovers(replicas, load, zookeeper, means, rng)
                usual = [kind for kind in KINDS or USUAL if kind in takeovers.kinds]
                for kind in in_turn(KINDS or takeovers.kinds, count, rng) if count else usual:
                    print(kind, flush=True)
                    takeovers.take(kind)
                    for other in others:
                        other.wait_for_more(1)
                    assert not consumer.problems, consumer.problems
                for each in (*others, load):
                    each.stop()
                judge(replicas, consumer)
                tell(takeovers)
        finally:
            replicas.close()


@contextlib.contextmanager
def loads(
    replicas: ReplicaSet, is_campaign: bool
) -> Iterator[tuple[Load, OriginalConsumer, list[Load]]]:
    connect, history = replicas.zk_connect, replicas.history
    patience = {"patience_s": PATIENCE_S, "pause_s": PAUSE_S}
    load = Load(replicas, history, **patience)
    with (
        OriginalConsumer(connect, history) as consumer,
        OriginalBrokers(connect, replicas.describe) as brokers,
    ):
        # Its producer needs the default's gap to notice that an address has gone.
        has_gap = is_campaign and not HAS_SHORT_TIMES
        others = [Load(brokers, history, int(has_gap), **patience)] if has_gap else []
        if is_campaign:
            others.append(OurProducer(replicas, connect, **patience))
            others.append(Load(replicas, history, patience_s=PATIENCE_S, pause_s=0.2, target=MANY))
        yield load, consumer, others


def judge(replicas: ReplicaSet, consumer: OriginalConsumer) -> None:
    replicas.wait_in_sync()
    with replicas.connect() as client:
        *final, end = read_all(client)
        others = list(read_all(client, MANY))
    verdict = check([*replicas.history, *leaderships(replicas), *final, end, *others])
    print(verdict)
    assert verdict.is_good, f"{verdict}\nFAULT_SEED={SEED}"
    wait_until(
        lambda: consumer.problems or consumer.position == end["offset"],
        lambda: f"all consumed: {consumer.position} of {end['offset']}",
    )
    assert not consumer.problems, consumer.problems
    assert consumer.consumed == [event["id"] for event in final], "in order, each once"
    replicas.wait_equal()


def leaderships(replicas: ReplicaSet) -> list[dict[str, Any]]:
    """By the members' logs; each process that leads is another one."""
    found = [
        {"f": "leads", "epoch": int(epoch), "by": f"{log} {number}"}
        for log in replicas.path.glob("*/*.log")
        for number, epoch in enumerate(
            re.findall(r"event=replica_leads broker_id=\d+ epoch=(\d+)", log.read_text())
        )
    ]
    print(f"{len(found)} leaderships")
    return found


def tell(takeovers: Takeovers) -> None:
    """How long no producer's barrier was answered."""
    every = takeovers.without_barrier_s
    every["all"] = [one for times in every.values() for one in times]
    for kind, times in every.items():
        print(
            f"{kind}: {len(times)} times, without a barrier for {min(times):.1f} to "
            f"{max(times):.1f} s, median {statistics.median(times):.1f} s"
        )
