"""Hosts, links, clients, readers and operators; what can happen to them, each action by name.

`do("flush", "a", "t-0", 1)` does one thing, deterministically, and returns whether it could be
done at all. A schedule is a list of such actions. Nothing happens that is not in it: time passes,
frames arrive, disks flush and ZooKeeper answers by actions only.
"""

from collections.abc import Callable
from typing import Any

from kafka2011.broker.replication import effects as wanted
from kafka2011.broker.replication import events as happened
from kafka2011.broker.replication.copies import Copy
from kafka2011.broker.replication.frames import Data, Frame, Mark
from kafka2011.broker.replication.machine import Replica
from kafka2011.broker.replication.set_state import SetState
from tests.simulation.disk import Disk, Entry, LogFile
from tests.simulation.hosts import FIRST, PARTITIONS, End, Host
from tests.simulation.invariants import Judge, Violation
from tests.simulation.outside import Outside
from tests.simulation.registry import Registry, Request

Action = tuple[Any, ...]


class World(Outside):
    def __init__(
        self,
        replicas: int = 3,
        min_insync: int = 1,
        machine: type[Replica] = Replica,
        *,
        names_are_directories: bool = False,
        keeps_what_it_took: bool = False,
        counts_unseen_starts: bool = False,
    ) -> None:
        """Planted faults: `names_are_directories`, a wiped disk keeps its identity;
        `keeps_what_it_took`, a leader that is deposed writes what waits for a new segment;
        `counts_unseen_starts`, a directory counts its starts whatever ZooKeeper knows."""
        super().__init__()
        self.machine = machine
        self.names_are_directories = names_are_directories
        self.keeps_what_it_took = keeps_what_it_took
        self.counts_unseen_starts = counts_unseen_starts
        names = "abcd"[:replicas]
        self.directories = 0
        self.hosts = {name: Host(name, self._new_disk(name)) for name in names}
        self.names = list(names)
        members = tuple((host.name, host.disk.directory) for host in self.hosts.values())
        isr = frozenset(directory for _, directory in members)
        self.registry = Registry(SetState(0, None, isr, frozenset(), min_insync, members))
        self.judge = Judge(PARTITIONS)
        self.late: list[Request] = []  # writes that were not answered, and may still be carried out
        self.links: list[End] = []
        self.schedule: list[Action] = []
        self._bringing: list[Entry] = []  # of the Data frame that arrives

    def _new_disk(self, name: str) -> Disk:
        self.directories += 1
        directory = f"dir-{name}-{0 if self.names_are_directories else self.directories}"
        logs = {partition: LogFile(exists=partition in FIRST) for partition in PARTITIONS}
        return Disk(directory, logs)

    # --- actions -------------------------------------------------------------------------------

    def do(self, action: Action) -> bool:
        """Do one action, and judge. Raises Violation; False when it was not possible."""
        name, *arguments = action
        method: Callable[..., bool] = getattr(self, f"do_{name}")
        self.schedule.append(action)
        if not method(*arguments):
            self.schedule.pop()
            return False
        self.judge.check(self)
        return True

    # processes

    def do_start(self, name: str) -> bool:
        host = self.hosts[name]
        if host.machine is not None:
            return False
        disk = host.disk
        disk.recover()
        host.run += 1
        host.is_paused = host.is_open = False
        copies = {
            partition: Copy(
                log.start,
                disk.watermarks[partition],
                log.durable,
                log.durable,
                disk.lineages[partition],
            )
            for partition, log in disk.logs.items()
            if log.exists
        }
        host.opening.clear()
        whole = self._count_start(disk)
        host.machine = self.machine(
            name, disk.directory, copies, accepted=disk.accepted, whole=whole
        )
        self.registry.sessions.add(disk.directory)
        self.judge.written_down(host)
        self.feed(host, happened.LookAgain())
        return True

    def do_die_at_start(self, name: str) -> bool:
        """A process is started, and ends before it has said or written anything else."""
        return self.do_start(name) and self.do_crash(name)

    def do_die_in_cut(self, name: str, count: int, kept: int) -> bool:
        host = self.hosts[name]
        if not host.runs or not host.disk.cuts or host.disk.removals or host.is_full:
            return False
        host.disk.cut_some(count, kept)
        return self.do_crash(name)

    def is_whole(self, disk: Disk) -> bool:
        """Whether a directory is whole: an older copy of it shows by its number of starts."""
        return disk.whole and disk.starts >= self.registry.starts.get(disk.directory, 0)

    def _count_start(self, disk: Disk) -> bool:
        """Count a start; returns whether the directory is whole."""
        starts = self.registry.starts
        known = starts.get(disk.directory, 0)
        if self.counts_unseen_starts:
            disk.starts += 1
            starts[disk.directory] = max(known, disk.starts)
            return disk.whole and disk.starts > known
        disk.whole = self.is_whole(disk)
        disk.starts = starts[disk.directory] = max(disk.starts, known) + 1
        return disk.whole

    def do_crash(self, name: str, journalled: int = 0) -> bool:
        """The process dies after `journalled` more journal writes; the kernel keeps its cache."""
        host = self.hosts[name]
        if host.machine is None:
            return False
        for _ in range(min(journalled, len(host.disk.journal))):
            host.disk.write_journal()
        host.disk.stop()
        self._forget(host)
        if host.disk.is_suspect:
            self._lose_power(host.disk, 0)
        return True

    def do_power(self, name: str, kept: int) -> bool:
        """The machine loses power; of each log `kept` says which cached entries are on the disk."""
        host = self.hosts[name]
        host.disk.stop()
        if host.machine is not None:
            self._forget(host)
        self._lose_power(host.disk, kept)
        return True

    def _lose_power(self, disk: Disk, kept: int) -> None:
        for log in disk.logs.values():
            log.lose_power(kept)

    def _forget(self, host: Host) -> None:
        for number in list(host.ends):
            self._close(host, number)
        if host.request is not None:
            self._let_go(host.request)
        host.machine = host.request = None
        host.is_paused = host.is_open = False
        host.must_watch = False
        host.told_epoch = 0
        host.dials.clear()
        host.canvasses.clear()
        host.refused.clear()
        host.taken.clear()
        host.is_draining = False

    def do_pause(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs:
            return False
        host.is_paused = True
        return True

    def do_go_on(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.is_paused:
            return False
        host.is_paused = False
        return True

    def do_tick(self, name: str, ms: int) -> bool:
        """The clock of one host goes on. Clocks have nothing to do with one another."""
        host = self.hosts[name]
        host.clock_ms += ms
        if host.runs:
            self.feed(host, happened.Tick())
        return True

    def do_begin_anew(self, name: str) -> bool:
        """An operator says that a copy is damaged, while another whole one is a candidate."""
        host = self.hosts[name]
        if not self._can_spare(host.disk):
            return False
        return self.feed(host, happened.BeginAnew())

    def do_hand_over(self, name: str) -> bool:
        return self.feed(self.hosts[name], happened.HandOver())

    def do_drained(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs or not host.is_draining or host.taken:
            return False
        host.is_draining = False
        return self.feed(host, happened.Drained())

    # disks

    def do_flush(self, name: str, partition: str, count: int = 1_000) -> bool:
        """A flush of the next `count` cached entries ends."""
        host = self.hosts[name]
        log = host.disk.logs[partition]
        if not host.runs or host.disk.is_suspect or log.durable == len(log.entries):
            return False
        log.durable = min(log.durable + count, len(log.entries))
        self.judge.written_down(host)
        return self.feed(host, happened.Flushed(partition, log.durable))

    def do_fail_flush(self, name: str, partition: str) -> bool:
        host = self.hosts[name]
        if not host.runs or host.disk.is_suspect:
            return False
        host.disk.is_suspect = True
        return self.feed(host, happened.LogFailed(partition))

    def do_journal(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs or not host.disk.journal or host.machine is None or host.is_full:
            return False
        number = host.disk.write_journal()
        copies = host.machine.context.copies
        host.disk.watermarks = {partition: copy.watermark for partition, copy in copies.items()}
        self.judge.written_down(host)
        return self.feed(host, happened.Journalled(number))

    def do_cut(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs or not host.disk.cuts or host.disk.removals or host.is_full:
            return False
        host.disk.cut_logs()
        host.opening -= {n for n, log in host.disk.logs.items() if not log.exists}  # made anew
        self.judge.written_down(host)
        return self.feed(host, happened.LogsCut())

    def do_retire(self, name: str, partition: str, start: int) -> bool:
        """By its policy a log of the leader begins at `start`, if the leader may retire so much."""
        host = self.hosts[name]
        if not host.runs or host.machine is None or partition not in host.machine.context.copies:
            return False
        end = host.machine.retirable(partition)
        if end is None or not host.machine.context.copies[partition].start < start <= end:
            return False
        self.judge.retired(host, partition, start)
        host.disk.removals.append((partition, start))
        return self.feed(host, happened.Retired(partition, start))

    def do_remove_segments(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs or not host.disk.removals:
            return False
        host.disk.remove()
        return True

    def do_fill(self, name: str) -> bool:
        """The disk has no room from here on."""
        if self.hosts[name].is_full:
            return False
        self.hosts[name].is_full = True
        return True

    def do_free(self, name: str) -> bool:
        if not self.hosts[name].is_full:
            return False
        self.hosts[name].is_full = False
        return True

    def do_no_room(self, name: str) -> bool:
        """A write that found no room is reported to the process."""
        host = self.hosts[name]
        if not host.runs or not host.refused:
            return False
        partition = host.refused.pop(0)
        return self.feed(host, happened.NoRoom(partition, len(host.disk.logs[partition].entries)))

    def do_wipe(self, name: str) -> bool:
        """An empty disk replaces the old one, if `_can_spare` allows it."""
        host = self.hosts[name]
        if host.machine is not None or not self._can_spare(host.disk):
            return False
        self.registry.sessions.discard(host.disk.directory)
        self.registry.starts.pop(host.disk.directory, None)
        host.disk = self._new_disk(name)
        return True

    def do_back_up(self, name: str) -> bool:
        host = self.hosts[name]
        if host.machine is not None:
            return False
        host.backup = host.disk.copied()
        return True

    def do_restore(self, name: str) -> bool:
        """The directory as it was at a backup. Its number of starts says that it is old."""
        host = self.hosts[name]
        if host.machine is not None or host.backup is None or not self._can_spare(host.disk):
            return False
        if host.backup.directory != host.disk.directory:
            return False
        host.disk = host.backup.copied()
        return True

    def _can_spare(self, disk: Disk) -> bool:
        """Whether another whole copy is a candidate, now and after any write under way."""
        under_way = [host.request for host in self.hosts.values() if host.request] + self.late
        states = [self.registry.state]
        states += [
            request.effect.state
            for request in under_way
            if request.answer is None and isinstance(request.effect, wanted.WriteState)
        ]
        others = {
            host.disk.directory
            for host in self.hosts.values()
            if host.disk is not disk
            and self.is_whole(host.disk)
            and all(entry.whole for entry in host.disk.journal)
            and not host.disk.is_suspect
        }
        return all(state.candidates & others for state in states)

    # links

    def do_dial(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs or not host.dials:
            return False
        asked = host.dials.popleft()
        there = self._host_of(asked.directory)
        if there is None or there.machine is None or there is host:
            return self.feed(host, happened.Closed(asked.link, refused=True))
        there.accepted_links += 1
        ours = End(name, host.run, asked.link)
        theirs = End(there.name, there.run, there.accepted_links, other=ours)
        ours.other = theirs
        host.ends[ours.number], there.ends[theirs.number] = ours, theirs
        self.links += [ours, theirs]
        return self.feed(host, happened.Connected(asked.link))

    def arriving(self, sender: str, receiver: str) -> list[End]:
        """The links on which something from `sender` waits for `receiver`, oldest first."""
        return [
            end
            for end in self.links
            if end.host == receiver and end.queue and end.other and end.other.host == sender
        ]

    def do_frame(self, sender: str, receiver: str, index: int = 0) -> bool:
        """The next frame of one of the links between the two arrives, or the link's end."""
        host = self.hosts[receiver]
        ends = self.arriving(sender, receiver)
        if not host.runs or index >= len(ends):
            return False
        end = ends[index]
        item = end.queue.popleft()
        if item is None:
            self.links.remove(end)
            end.is_open = False
            host.ends.pop(end.number, None)
            return self.feed(host, happened.Closed(end.number))
        frame, entries = item
        if isinstance(frame, Data):
            sender_end = end.other
            assert sender_end is not None
            if sender_end.is_open:
                self.judge.sent(self.hosts[sender_end.host], frame.partition, frame.offset)
            if frame.offset != len(host.disk.logs[frame.partition].entries) and host.refused:
                self._close(host, end.number)  # what was before it found no room
                return self.feed(host, happened.Closed(end.number))
            self._bringing = entries
        return self.feed(host, happened.Received(end.number, frame))

    def do_break(self, sender: str, receiver: str, index: int = 0, kept: int = 0) -> bool:
        """A link breaks: only the next `kept` frames to the receiver still arrive."""
        ends = [
            end
            for end in self.links
            if end.host == receiver and end.is_open and end.other and end.other.host == sender
        ]
        if index >= len(ends):
            return False
        end = ends[index]
        other = end.other
        assert other is not None
        while len(end.queue) > kept:
            end.queue.pop()
        end.queue.append(None)
        if other.is_open and None not in other.queue:
            other.queue.append(None)
        return True

    def _host_of(self, directory: str) -> Host | None:
        return next((h for h in self.hosts.values() if h.disk.directory == directory), None)

    def _close(self, host: Host, number: int) -> None:
        end = host.ends.pop(number, None)
        if end is None:
            return
        end.is_open = False
        if end in self.links:
            self.links.remove(end)
        other = end.other
        if other is not None and other.is_open and None not in other.queue:
            other.queue.append(None)

    def do_canvass(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs or not host.canvasses:
            return False
        number, directory = host.canvasses.popleft()
        there = self._host_of(directory)
        if there is None or not there.runs or there.machine is None:
            return True
        answer = there.machine.canvassed()
        if answer is None:
            return True
        return self.feed(
            host,
            happened.Canvassed(number, directory, answer.accepted, answer.ends, answer.watermarks),
        )

    # ZooKeeper

    def do_apply(self, name: str, lag: int = 0) -> bool:
        """The request under way is carried out; a reading sees the state of `lag` versions ago."""
        request = self.hosts[name].request
        if request is None or request.answer is not None:
            return False
        self._carry_out(request, lag)
        return True

    def do_answer(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs or host.request is None or host.request.answer is None:
            return False
        answer, host.request = host.request.answer, None
        assert answer is not None
        return self.feed(host, answer)

    def do_ask(self, name: str) -> bool:
        """The request under way is carried out and answered at once."""
        if not self.hosts[name].runs or self.hosts[name].request is None:
            return False
        self.do_apply(name)
        return self.do_answer(name)

    def do_lose(self, name: str) -> bool:
        """The answer is lost; what was not carried out yet may still be."""
        host = self.hosts[name]
        if not host.runs or host.request is None:
            return False
        request, host.request = host.request, None
        self._let_go(request)
        return self.feed(host, happened.Unanswered(request.effect.request))

    def do_late(self, index: int) -> bool:
        if index >= len(self.late):
            return False
        self._carry_out(self.late.pop(index), 0)
        return True

    def do_never(self, index: int) -> bool:
        if index >= len(self.late):
            return False
        del self.late[index]
        return True

    def do_expire(self, name: str) -> bool:
        host = self.hosts[name]
        if host.disk.directory not in self.registry.sessions:
            return False
        self.registry.sessions.discard(host.disk.directory)
        if self.registry.address and self.registry.address[0] == name:
            self.registry.address = None
        return True

    def do_renew(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs or host.disk.directory in self.registry.sessions:
            return False
        self.registry.sessions.add(host.disk.directory)
        return self.feed(host, happened.SessionRenewed())

    def do_watch(self, name: str) -> bool:
        host = self.hosts[name]
        if not host.runs or not host.must_watch:
            return False
        host.must_watch = False
        epoch, host.told_epoch = host.told_epoch, 0
        return self.feed(host, happened.LookAgain(epoch))

    def _let_go(self, request: Request) -> None:
        if request.answer is None and not isinstance(request.effect, wanted.ReadState):
            self.late.append(request)

    def _carry_out(self, request: Request, lag: int) -> None:
        version = self.registry.version
        self.registry.carry_out(request, lag)
        if self.registry.version != version:
            self.tell_all()

    # --- effects -------------------------------------------------------------------------------

    def feed(self, host: Host, event: happened.Event) -> bool:
        """Hand an event in, and carry out what is wanted, in order."""
        if not host.runs or host.machine is None:
            return False
        for effect in host.machine.step(host.clock_ms, event):
            self._carry_effect(host, effect)
        return True

    def _carry_effect(self, host: Host, effect: wanted.Effect) -> None:
        match effect:
            case wanted.Send(link, frame):
                self._send(host, link, frame)
            case wanted.Confirm(epoch, partition, watermark):
                self.judge.confirm(host, epoch, partition, watermark)
            case wanted.Write(partition, offset, end):
                log = host.disk.logs[partition]
                assert len(log.entries) == offset
                assert len(self._bringing) == end - offset
                if host.is_full:
                    host.refused.append(partition)
                    return
                log.entries += self._bringing
                self.judge.appended(self.hosts, host, partition, offset)
            case wanted.ReadState() | wanted.WriteState() | wanted.Register():
                assert host.request is None
                host.request = Request(host.name, host.run, effect)
            case wanted.Journal():
                host.disk.journal.append(effect)
            case wanted.AnswerBarrier(number):
                self.judge.answered(*self.barriers[number])
                self.answered.add(number)
            case wanted.Connect():
                host.dials.append(effect)
            case wanted.Close(link):
                self._close(host, link)
            case wanted.CutLogs(steps):
                host.disk.cuts.append(dict(steps))
            case wanted.Canvass(number, directories):
                host.canvasses.extend((number, name) for name in sorted(directories))
            case wanted.Tell(directories):
                for other in self.hosts.values():
                    if other.disk.directory in directories and other.machine is not None:
                        assert host.machine is not None
                        other.must_watch = True
                        other.told_epoch = max(other.told_epoch, host.machine.context.accepted)
            case wanted.Retire(partition, start):
                host.disk.removals.append((partition, start))
            case wanted.OpenLog(partition):
                host.opening.discard(partition)
            case wanted.OpenClients():
                host.is_open = True
                assert host.machine is not None
                assert host.machine.leads is not None
                host.opening -= host.machine.leads.floors.keys()
            case wanted.CloseClients():
                host.is_open = host.is_draining = False
                if not self.keeps_what_it_took:
                    host.taken.clear()
            case wanted.PauseProducers(pause):
                host.is_draining = pause
            case wanted.LosesConfirmed():
                raise Violation(
                    "I1", f"{host.name}: {effect}, and no election by hand was asked for"
                )
            case wanted.Damaged() | wanted.Known() | wanted.StateOlder():
                pass

    def _send(self, host: Host, link: int, frame: Frame) -> None:
        end = host.ends.get(link)
        if end is None or end.other is None or None in end.other.queue or not end.other.is_open:
            return
        entries: list[Entry] = []
        if isinstance(frame, Mark):
            frame = end.moved(frame)
        if isinstance(frame, Data):
            entries = host.disk.logs[frame.partition].entries[frame.offset : frame.end]
        end.other.queue.append((frame, entries))
