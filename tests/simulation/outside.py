"""What clients, readers and operators do to a replica set."""

from dataclasses import dataclass, field, replace

from kafka2011.broker.replication import events as happened
from kafka2011.broker.replication.leader import Answer
from kafka2011.broker.replication.set_state import SetState
from tests.simulation.disk import Entry
from tests.simulation.hosts import PARTITIONS, Host
from tests.simulation.invariants import Judge, Violation
from tests.simulation.registry import Registry


@dataclass(slots=True)
class Reader:
    """A 0.7 consumer: it follows the addresses that ZooKeeper shows, in their order, late."""

    seen: int = -1  # index of the address
    shown: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))


class Outside:
    """The part of a world that is not the set's own; `feed` hands a host's machine an event."""

    hosts: dict[str, Host]
    registry: Registry
    judge: Judge

    def __init__(self) -> None:
        self.readers = [Reader(), Reader()]
        self.entries = 0
        self.barriers: dict[int, tuple[dict[str, Entry | None], dict[str, int]]] = {}
        self.answered: set[int] = set()

    def feed(self, host: Host, event: happened.Event) -> bool:
        raise NotImplementedError

    def tell_all(self) -> None:
        """Have every process's watch fire, later."""
        for host in self.hosts.values():
            host.must_watch = host.machine is not None

    # operators

    def do_min_insync(self, count: int) -> bool:
        state = self.registry.state
        if not 1 <= count <= len(self.hosts) or count == state.min_insync:
            return False
        return self._command(replace(state, wanted_min_insync=count))

    def do_remove(self, name: str) -> bool:
        state = self.registry.state
        directory = self.hosts[name].disk.directory
        if directory == state.leader or not state.is_member(directory):
            return False
        # Also where `operator_changes.without_member` refuses to: the set must bear that, too.
        members = tuple(member for member in state.members if member[1] != directory)
        return self._command(replace(state, members=members))

    def do_add(self, name: str) -> bool:
        state = self.registry.state
        if state.entered_for(name) is not None:
            return False
        directory = self.hosts[name].disk.directory
        return self._command(replace(state, members=(*state.members, (name, directory))))

    def do_want(self, name: str) -> bool:
        directory = self.hosts[name].disk.directory
        if directory not in self.registry.state.isr:
            return False
        return self._command(replace(self.registry.state, wanted_leader=directory))

    def _command(self, state: SetState) -> bool:
        self.registry.put(state)
        self.tell_all()
        return True

    # clients

    def do_make(self, name: str, partition: str) -> bool:
        """A client produces to a partition that is new to the leader."""
        host = self.hosts[name]
        if not host.runs or host.machine is None or not host.machine.takes_produces:
            return False
        if partition in host.machine.context.copies or host.is_full:
            return False
        host.disk.logs[partition].exists = True
        host.opening.add(partition)
        return self.feed(host, happened.LogMade(partition))

    def do_take(self, name: str, partition: str) -> bool:
        """A client's message waits in memory: for a new segment, which waits for a flush."""
        host = self.hosts[name]
        if not host.runs or host.machine is None or not host.machine.takes_produces:
            return False
        if partition not in host.machine.context.copies or partition in host.opening:
            return False
        leader = host.machine.leads
        assert leader is not None
        host.taken.append((partition, leader.epoch))
        return True

    def do_put(self, name: str, partition: str) -> bool:
        """A client's message is taken and written, or waits behind another."""
        host = self.hosts[name]
        if host.is_full or not self.do_take(name, partition):
            return False
        return len(host.taken) > 1 or self.do_write(name)

    def do_write(self, name: str) -> bool:
        """The oldest message that waits is written, or refused where there is no room."""
        host = self.hosts[name]
        if not host.runs or not host.taken:
            return False
        partition, epoch = host.taken.pop(0)
        if host.is_full:
            return True
        log = host.disk.logs[partition]
        self.entries += 1
        before = log.entries[-1] if log.entries else None
        log.entries.append(Entry(self.entries, epoch, before))
        self.judge.appended(self.hosts, host, partition, len(log.entries) - 1)
        return self.feed(host, happened.Appended(partition, len(log.entries)))

    def do_barrier(self, name: str) -> bool:
        """A producer asks for the end of all that stands in the log."""
        host = self.hosts[name]
        if not host.runs or not host.is_open or host.machine is None:
            return False
        number = len(self.barriers) + 1
        copies = host.machine.context.copies
        logs = {partition: host.disk.logs[partition] for partition in copies}
        asked = {partition: len(log.entries) for partition, log in logs.items()}
        entries = {p: log.entries[-1] if log.entries else None for p, log in logs.items()}
        self.barriers[number] = (entries, asked)
        return self.feed(host, happened.BarrierAsked(number, asked))

    def do_look_up(self, index: int) -> bool:
        """A reader learns the next address that was shown."""
        reader = self.readers[index]
        if reader.seen + 1 >= len(self.registry.addresses):
            return False
        reader.seen += 1
        return True

    def do_read(self, index: int, partition: str) -> bool:
        """I6: never an end below, or error 1 at, an offset that the reader was shown."""
        reader = self.readers[index]
        if reader.seen < 0:
            return False
        host = self.hosts[self.registry.addresses[reader.seen][0]]
        if not host.runs or not host.is_open or host.machine is None:
            return False
        shown = reader.shown[partition]
        if partition not in host.machine.context.copies:
            if shown:
                raise Violation("I6", f"{host.name} has no {partition}, {index} has seen {shown}")
            return False
        answer = host.machine.fetch(partition, shown)
        if answer is Answer.OUT_OF_RANGE and shown < self.judge.start[partition]:
            reader.shown[partition] = max(shown, host.machine.context.copies[partition].start)
            return True
        if answer is Answer.OUT_OF_RANGE:
            raise Violation("I6", f"reader {index} gets error 1 from {host.name} at {shown}")
        latest = host.machine.latest(partition)
        if latest is not None and latest < shown:
            raise Violation("I6", f"reader {index} is shown {latest} by {host.name}, was {shown}")
        if answer is Answer.READ:
            watermark = host.machine.context.copies[partition].watermark
            confirmed = self.judge.confirmed[partition]
            entries = host.disk.logs[partition].entries
            if entries[shown:watermark] != confirmed[shown:watermark]:
                raise Violation("I2", f"reader {index} is shown {entries}, confirmed {confirmed}")
            reader.shown[partition] = max(shown, watermark)
        return True
