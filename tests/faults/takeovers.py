"""What happens to a replica set, fault by fault: each method of `Takeovers` in KINDS is one, begins
with all members in sync under load, and heals what it broke.

Most make another lead; where none has to, the set goes on all the same.
"""

import contextlib
import random
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.support.commands import run
from tests.support.namespaces import one_way_cut
from tests.support.replica_sets import BROKER_ID, Load, ReplicaSet
from tests.support.waiting import wait_until

SLOW_MS = 100


@dataclass(frozen=True)
class Means:
    """What can be broken here. `zookeeper`: its address, where members are hosts of their own;
    `has_slow_disks`: members' flushes go through the library of disks.py."""

    zookeeper: str = ""
    has_slow_disks: bool = False


class Takeovers:
    def __init__(self, replicas: ReplicaSet, load: Load, means: Means, rng: random.Random) -> None:
        self.replicas = replicas
        self.load = load
        self.without_barrier_s: dict[str, list[float]] = defaultdict(list)
        self._rng = rng
        self._kinds = dict(KINDS)
        self._zookeeper = means.zookeeper
        if means.zookeeper:
            self._kinds |= LINK_KINDS
        if means.has_slow_disks:
            self._kinds |= DISK_KINDS

    @property
    def kinds(self) -> list[str]:
        return list(self._kinds)

    def take(self, kind: str) -> None:
        """One fault; all members are in sync before and afterwards."""
        self.load.wait_for_more(10)
        self.load.fault(kind)
        self.load.longest_s = 0.0
        self._kinds[kind](self, self.replicas.wait_for_leader())
        self.load.wait_for_more(1)
        self.replicas.wait_in_sync()
        self.without_barrier_s[kind].append(self.load.longest_s)

    def _wait_for_another(self, epoch: int) -> None:
        """Until a later epoch confirms."""
        replicas = self.replicas
        wait_until(lambda: replicas.state.epoch > epoch, replicas.describe)
        replicas.wait_for_leader()
        self.load.wait_for_more(1)

    @contextlib.contextmanager
    def _another_leads(self) -> Iterator[None]:
        epoch = self.replicas.state.epoch
        yield
        self._wait_for_another(epoch)

    def _followers(self, leader: str) -> list[str]:
        return [name for name in self.replicas.names if name != leader]

    # --- processes and directories -------------------------------------------------------------

    def killed(self, leader: str) -> None:
        with self._another_leads():
            self.replicas.kill(leader)
        self.replicas.start(leader)

    def killed_and_wiped(self, leader: str) -> None:
        with self._another_leads():
            self.replicas.kill(leader)
            self.replicas.wipe(leader)
        self.replicas.start(leader)

    def killed_and_restored(self, leader: str) -> None:
        """S31: its directory is put back as it was before, an older copy of itself."""
        replicas = self.replicas
        log_dir = replicas.log_dir(leader)
        older = log_dir.with_name("older")
        with self._another_leads():
            replicas.kill(leader)
            shutil.copytree(log_dir, older)
        replicas.start(leader)
        replicas.wait_in_sync()
        self.load.wait_for_more(10)
        replicas.kill(leader)
        shutil.rmtree(log_dir)
        older.rename(log_dir)
        replicas.start(leader)
        broker = replicas.brokers[leader]
        wait_until(lambda: broker.events("replica_is_older_copy"), "the older copy is noticed")

    def stands_still(self, leader: str) -> None:
        self.replicas.signal(leader, signal.SIGSTOP)
        try:
            with self._another_leads():
                pass
        finally:
            self.replicas.signal(leader, signal.SIGCONT)

    def stopped(self, leader: str) -> None:
        with self._another_leads():
            assert self.replicas.brokers[leader].stop() == 0
        self.replicas.start(leader)

    def hands_over(self, _leader: str) -> None:
        with self._another_leads():
            run("replicas", "handover", BROKER_ID, "--zookeeper", self.replicas.zk_connect)

    # --- links ---------------------------------------------------------------------------------

    def _cut(self, source: str, target: str) -> AbstractContextManager[None]:
        """What a member sends to another, or to ZooKeeper (""), is lost."""
        address = self.replicas.hosts[target].address if target else self._zookeeper
        return one_way_cut(self.replicas.hosts[source].inside, address)

    def cut_from_zookeeper(self, leader: str) -> None:
        """Z10."""
        with self._cut(leader, ""), self._another_leads():
            pass

    def cut_from_followers(self, leader: str) -> None:
        """N9: both ways, or one. Its clients and ZooKeeper reach it."""
        to, back = self._rng.choice([(True, True), (True, False), (False, True)])
        epoch = self.replicas.state.epoch
        with contextlib.ExitStack() as cuts:
            for name in self._followers(leader):
                if to:
                    cuts.enter_context(self._cut(leader, name))
                if back:
                    cuts.enter_context(self._cut(name, leader))
            self._wait_for_another(epoch)

    def cut_off_follower(self, leader: str) -> None:
        """The others go on without it."""
        follower = self._rng.choice(self._followers(leader))
        with self._cut(leader, follower), self._cut(follower, leader):
            self.replicas.wait_in_sync(self.replicas.names.replace(follower, ""))
            self.load.wait_for_more(10)

    # --- disks ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _slow(self, name: str, text: str) -> Iterator[None]:
        file = self.replicas.path / f"{name}.slow"
        file.write_text(text)
        try:
            yield
        finally:
            file.unlink()

    def leaders_disk_hangs(self, leader: str) -> None:
        """S30."""
        with self._slow(leader, ""), self._another_leads():
            pass

    def followers_disk_hangs(self, leader: str) -> None:
        follower = self._rng.choice(self._followers(leader))
        with self._slow(follower, ""):
            self.replicas.wait_in_sync(self.replicas.names.replace(follower, ""))
            self.load.wait_for_more(10)

    def slow_disk(self, _leader: str) -> None:
        """Of any member; nothing has to happen."""
        with self._slow(self._rng.choice(self.replicas.names), str(SLOW_MS)):
            self.load.wait_for_more(50)


Kinds = dict[str, Callable[[Takeovers, str], None]]
KINDS: Kinds = {
    "killed": Takeovers.killed,
    "killed, disk lost": Takeovers.killed_and_wiped,
    "killed, older copy put back": Takeovers.killed_and_restored,
    "stands still": Takeovers.stands_still,
    "stopped": Takeovers.stopped,
    "hands over": Takeovers.hands_over,
}
LINK_KINDS: Kinds = {
    "cut from ZooKeeper": Takeovers.cut_from_zookeeper,
    "cut from its followers": Takeovers.cut_from_followers,
    "a follower cut off": Takeovers.cut_off_follower,
}
DISK_KINDS: Kinds = {
    "its disk hangs": Takeovers.leaders_disk_hangs,
    "a follower's disk hangs": Takeovers.followers_disk_hangs,
    "a slow disk": Takeovers.slow_disk,
}
