"""What happens to a replica set, fault by fault: each method of `Takeovers` in KINDS is one, begins
with all members in sync under load, and heals what it broke.

Most make another lead; where none has to, the set goes on all the same.
"""

import contextlib
import os
import random
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.commands import run
from tests.support.namespaces import one_way_cut
from tests.support.replica_sets import BROKER_ID, Host, Load, ReplicaSet
from tests.support.waiting import wait_until

SLOW_MS = 100


@dataclass(frozen=True)
class Means:
    """What can be broken here. `zookeeper`: the words before a command that run it on ZooKeeper's
    host, and that host's address, where members are hosts of their own;
    `has_slow_disks`: members' flushes go through the library of disks.py; `has_own_disks`: each
    member's directory is in a file system of its own."""

    zookeeper: Host | None = None
    has_slow_disks: bool = False
    has_own_disks: bool = False


class Takeovers:
    def __init__(
        self,
        replicas: ReplicaSet,
        load: Load,
        server: ZooKeeperServer,
        means: Means,
        rng: random.Random,
    ) -> None:
        self.replicas = replicas
        self.load = load
        self._server = server
        self.without_barrier_s: dict[str, list[float]] = defaultdict(list)
        self._rng = rng
        self._kinds = dict(KINDS)
        self._zookeeper = means.zookeeper
        if means.zookeeper:
            self._kinds |= LINK_KINDS
        if means.has_slow_disks:
            self._kinds |= DISK_KINDS
        if means.has_own_disks:
            self._kinds |= ROOM_KINDS

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

    def _shuffled(self, names: Sequence[str]) -> list[str]:
        return self._rng.sample(names, len(names))

    def _pause(self, seconds_max: float, seconds_min: float = 0.0) -> None:
        """Any moment within that."""
        over_s = time.monotonic() + self._rng.uniform(seconds_min, seconds_max)
        wait_until(lambda: time.monotonic() >= over_s, "the moment")

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

    def _older_copy(self, name: str) -> Path:
        """Kill it and keep a copy of its directory; it has more when this returns."""
        replicas = self.replicas
        older = replicas.log_dir(name).with_name("older")
        with self._another_leads() if name == replicas.leader else contextlib.nullcontext():
            replicas.kill(name)
            shutil.copytree(replicas.log_dir(name), older)
        replicas.start(name)
        replicas.wait_in_sync()
        self.load.wait_for_more(10)
        return older

    def _put_back(self, name: str, older: Path) -> None:
        """Instead of the directory of a process that was killed."""
        log_dir = self.replicas.log_dir(name)
        shutil.rmtree(log_dir)
        older.rename(log_dir)
        self.replicas.start(name)
        broker = self.replicas.brokers[name]
        wait_until(lambda: broker.events("replica_is_older_copy"), "the older copy is noticed")

    def killed_and_restored(self, leader: str) -> None:
        """S31: its directory is put back as it was before, an older copy of itself."""
        older = self._older_copy(leader)
        self.replicas.kill(leader)
        self._put_back(leader, older)

    def killed_before_it_serves(self, leader: str) -> None:
        """The next leader is killed as well, at some moment of its takeover."""
        replicas = self.replicas
        epoch = replicas.state.epoch
        replicas.kill(leader)
        wait_until(lambda: replicas.state.epoch > epoch, replicas.describe)
        self._pause(2.5)
        state = replicas.state
        second = replicas.name_of(state.leader) or leader
        if second == leader:
            replicas.start(leader)
            self._wait_for_another(epoch)
            return
        replicas.kill(second)
        is_last = replicas.state.candidates == {state.leader}
        for name in [leader, second] if is_last else [leader]:
            replicas.start(name)
        self._wait_for_another(state.epoch)
        if not is_last:
            replicas.start(second)

    def killed_with_a_follower(self, leader: str) -> None:
        """The third takes over, and confirms when one more is back."""
        follower = self._rng.choice(self._followers(leader))
        epoch = self.replicas.state.epoch
        pair = self._shuffled([leader, follower])
        for name in pair:
            self.replicas.kill(name)
        wait_until(lambda: self.replicas.state.epoch > epoch, self.replicas.describe)
        for name in self._shuffled(pair):
            self.replicas.start(name)
        self._wait_for_another(epoch)

    def all_killed(self, _leader: str) -> None:
        with self._another_leads():
            for name in self._shuffled(self.replicas.names):
                self.replicas.kill(name)
            for name in self._shuffled(self.replicas.names):
                self.replicas.start(name)

    def all_killed_and_one_restored(self, leader: str) -> None:
        """S31: the older copy is the first to start, and alone at first; maybe it is started again
        and again. It must not lead."""
        replicas = self.replicas
        older = self._older_copy(leader)
        epoch = replicas.state.epoch
        for name in self._shuffled(replicas.names):
            replicas.kill(name)
        self._put_back(leader, older)
        for _ in range(self._rng.randrange(4)):
            replicas.kill(leader)
            replicas.start(leader)
        self._pause(8.0)
        assert replicas.state.epoch == epoch, replicas.describe()
        with self._another_leads():
            for name in self._followers(leader):
                replicas.start(name)

    def killed_while_another_copies(self, leader: str) -> None:
        """A follower has lost its disk, and copies when its leader is killed."""
        replicas = self.replicas
        follower = self._rng.choice(self._followers(leader))
        replicas.kill(follower)
        replicas.wipe(follower)
        replicas.start(follower)
        self._pause(2.0)
        with self._another_leads():
            replicas.kill(leader)
            self._pause(3.0)
            replicas.start(leader)

    def started_twice(self, leader: str) -> None:
        """A second process of the leader's name, on a follower's host, with a copy of its
        directory: it is refused, and does the first no harm."""
        replicas = self.replicas
        path = replicas.path / "again"
        log_dir = path / "broker-1"
        with contextlib.suppress(shutil.Error):  # files that went meanwhile
            shutil.copytree(replicas.log_dir(leader), log_dir)
        again = replicas.start_beside(leader, self._rng.choice(self._followers(leader)), log_dir)
        again.wait()
        assert "another process has the directory" in again.log(), again.log()
        self.load.wait_for_more(10)
        shutil.rmtree(path)
        self.killed(leader)
        self.replicas.wait_in_sync()
        found = self.replicas.brokers[leader].events("replica_is_older_copy")
        assert not found, "the directory of the first process is the newest"

    def stopped_one_by_one(self, _leader: str) -> None:
        """A rolling restart."""
        for name in self._shuffled(self.replicas.names):
            assert self.replicas.brokers[name].stop() == 0
            self.load.wait_for_more(1)
            self.replicas.start(name)
            self.replicas.wait_in_sync()
            self.load.wait_for_more(1)

    def stands_still(self, leader: str) -> None:
        self.replicas.signal(leader, signal.SIGSTOP)
        try:
            with self._another_leads():
                pass
        finally:
            self.replicas.signal(leader, signal.SIGCONT)

    def follower_stands_still(self, leader: str) -> None:
        """What it has not read is on its connections when it goes on."""
        follower = self._rng.choice(self._followers(leader))
        self.replicas.signal(follower, signal.SIGSTOP)
        try:
            self.replicas.wait_in_sync(self.replicas.names.replace(follower, ""))
            self.load.wait_for_more(10)
            if self._rng.random() < 0.5:
                self.hands_over(leader)
        finally:
            self.replicas.signal(follower, signal.SIGCONT)

    def stopped(self, leader: str) -> None:
        with self._another_leads():
            assert self.replicas.brokers[leader].stop() == 0
        self.replicas.start(leader)

    def hands_over(self, _leader: str) -> None:
        with self._another_leads():
            run("replicas", "handover", BROKER_ID, "--zookeeper", self.replicas.zk_connect)

    # --- ZooKeeper -----------------------------------------------------------------------------

    def zookeeper_stands_still(self, leader: str) -> None:
        """Beyond every session: when it goes on it may end all of them at once."""
        pid = self._server.pid
        self._without_zookeeper(
            leader, lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT)
        )

    def zookeeper_killed(self, leader: str) -> None:
        """It remembers sessions, and gives them their whole time again."""
        self._without_zookeeper(leader, self._server.kill, self._server.start)

    def _without_zookeeper(
        self, leader: str, stop: Callable[[], object], go_on: Callable[[], object]
    ) -> None:
        """Z12: those that are in sync confirm on. A member may be killed meanwhile: then nothing is
        confirmed before ZooKeeper is back, and with it another leader, or a smaller set."""
        replicas = self.replicas
        gone = self._rng.choice(["", "", leader, self._rng.choice(self._followers(leader))])
        stop()
        try:
            self.load.wait_for_more(10)
            if gone:
                self._pause(2.0)
                replicas.kill(gone)
            session_s = replicas.session_ms / 1000
            self._pause(2.5 * session_s, session_s)
        finally:
            go_on()
        replicas.wait_for_zookeeper()
        if gone:
            self.load.wait_for_more(10)
            replicas.start(gone)

    # --- links ---------------------------------------------------------------------------------

    def _cut(self, source: str, target: str) -> AbstractContextManager[None]:
        """What a member or ZooKeeper ("") sends to another of them is lost."""
        return one_way_cut(self._host(source).inside, self._host(target).address)

    def _host(self, name: str) -> Host:
        if name:
            return self.replicas.hosts[name]
        assert self._zookeeper is not None
        return self._zookeeper

    def cut_from_zookeeper(self, leader: str) -> None:
        """Z10. The next one tells it."""
        with self._cut(leader, ""):
            with self._another_leads():
                pass
            self._wait_until_it_serves_none(leader)

    def _wait_until_it_serves_none(self, name: str) -> None:
        def refuses() -> bool:
            try:
                self.replicas.brokers[name].connect().close()
            except ConnectionRefusedError:
                return True
            return False

        wait_until(refuses, f"{name}'s client port is closed")

    def unanswered_by_zookeeper(self, leader: str) -> None:
        """Z11: what it asks for arrives, and may be carried out; no answer does."""
        with self._cut("", leader):
            with self._another_leads():
                pass
            self._wait_until_it_serves_none(leader)

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
            if self.replicas.state.min_insync == 1:  # it is the first to lose patience
                self.replicas.wait_in_sync(leader)
                self.load.wait_for_more(10)
            else:
                self._wait_for_another(epoch)

    def cut_from_all(self, leader: str) -> None:
        """Only clients reach it and are answered: nothing that it takes is confirmed."""
        with self._cut(leader, ""), contextlib.ExitStack() as cuts:
            for name in self._followers(leader):
                cuts.enter_context(self._cut(leader, name))
            with self._another_leads():
                pass

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

    def its_flush_fails(self, leader: str) -> None:
        """Once. Nothing is known of its logs then until a start has looked."""
        self._fail_a_flush(leader)

    def followers_flush_fails(self, leader: str) -> None:
        self._fail_a_flush(self._rng.choice(self._followers(leader)))

    def _fail_a_flush(self, name: str) -> None:
        file = self.replicas.path / f"{name}.fail"
        file.touch()
        wait_until(lambda: not file.exists(), "a flush that fails")
        self.replicas.wait_in_sync(self.replicas.names.replace(name, ""))
        self.load.wait_for_more(10)
        self.replicas.kill(name)
        self.replicas.start(name)

    def followers_disk_hangs(self, leader: str) -> None:
        follower = self._rng.choice(self._followers(leader))
        with self._slow(follower, ""):
            self.replicas.wait_in_sync(self.replicas.names.replace(follower, ""))
            self.load.wait_for_more(10)

    def slow_disk(self, _leader: str) -> None:
        """Of any member; nothing has to happen."""
        with self._slow(self._rng.choice(self.replicas.names), str(SLOW_MS)):
            self.load.wait_for_more(50)

    @contextlib.contextmanager
    def _without_room(self, name: str) -> Iterator[None]:
        disk = self.replicas.hosts[name].disk
        assert disk is not None
        ballast = disk / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 1_000_000)
            yield
        finally:
            ballast.unlink()

    def leaders_disk_is_full(self, leader: str) -> None:
        """It refuses what comes, until it has room or is told to hand over."""
        replicas = self.replicas
        broker = replicas.brokers[leader]

        def refusals() -> int:
            return broker.log().count("reason=storage-full")

        before = refusals()
        with self._without_room(leader):
            wait_until(lambda: refusals() > before, replicas.describe)
            if self._rng.random() < 0.5:
                self.hands_over(leader)
                self.load.wait_for_more(10)

    def followers_disk_is_full(self, leader: str) -> None:
        follower = self._rng.choice(self._followers(leader))
        with self._without_room(follower):
            self.replicas.wait_in_sync(self.replicas.names.replace(follower, ""))
            self.load.wait_for_more(10)


Kinds = dict[str, Callable[[Takeovers, str], None]]
KINDS: Kinds = {
    "killed": Takeovers.killed,
    "killed, disk lost": Takeovers.killed_and_wiped,
    "killed, older copy put back": Takeovers.killed_and_restored,
    "killed, and the next before it serves": Takeovers.killed_before_it_serves,
    "killed with a follower": Takeovers.killed_with_a_follower,
    "killed while another copies": Takeovers.killed_while_another_copies,
    "all killed": Takeovers.all_killed,
    "all killed, older copy put back": Takeovers.all_killed_and_one_restored,
    "started twice": Takeovers.started_twice,
    "stopped one by one": Takeovers.stopped_one_by_one,
    "stands still": Takeovers.stands_still,
    "a follower stands still": Takeovers.follower_stands_still,
    "stopped": Takeovers.stopped,
    "hands over": Takeovers.hands_over,
    "ZooKeeper stands still": Takeovers.zookeeper_stands_still,
    "ZooKeeper killed": Takeovers.zookeeper_killed,
}
LINK_KINDS: Kinds = {
    "cut from ZooKeeper": Takeovers.cut_from_zookeeper,
    "not answered by ZooKeeper": Takeovers.unanswered_by_zookeeper,
    "cut from its followers": Takeovers.cut_from_followers,
    "cut from all but its clients": Takeovers.cut_from_all,
    "a follower cut off": Takeovers.cut_off_follower,
}
DISK_KINDS: Kinds = {
    "its disk hangs": Takeovers.leaders_disk_hangs,
    "a follower's disk hangs": Takeovers.followers_disk_hangs,
    "its flush fails": Takeovers.its_flush_fails,
    "a follower's flush fails": Takeovers.followers_flush_fails,
    "a slow disk": Takeovers.slow_disk,
}
ROOM_KINDS: Kinds = {
    "its disk is full": Takeovers.leaders_disk_is_full,
    "a follower's disk is full": Takeovers.followers_disk_is_full,
}
