"""One running replica: feeds its machine the events, and carries out its effects, in order.

Everything here runs on the loop's thread. What waits for the disk or the network runs elsewhere and
comes back as an event, so that the machine never waits. An event that comes while effects are
carried out is handed in after them.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kafka2011.broker.core.disk_scheduler import DiskScheduler
from kafka2011.broker.core.errors import PartitionError, StorageFull
from kafka2011.broker.core.replica_storage import CutResult, ReplicaStorage
from kafka2011.broker.core.worker_threads import Job
from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.disk_jobs import Retirement
from kafka2011.broker.log.errors import CopyMisplaced
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.log.log import Log
from kafka2011.broker.log.tail import CopiedFrom
from kafka2011.broker.network.poller import Poller
from kafka2011.broker.replica.copying import Copying, Entries
from kafka2011.broker.replica.frames import Chunk, Greeting, Purpose, Sums, Wire
from kafka2011.broker.replica.handover import Handover
from kafka2011.broker.replica.link import Pace
from kafka2011.broker.replica.log_observer import LogObserver
from kafka2011.broker.replica.port import ReplicaPort
from kafka2011.broker.replica.requests import Request
from kafka2011.broker.replica.verifying import Verifying
from kafka2011.broker.replication import effects, events
from kafka2011.broker.replication.frames import Data, Frame, Hello, Mark, Verdict, Welcome
from kafka2011.broker.replication.machine import Canvassing, Replica
from kafka2011.broker.replication.plan import Step
from kafka2011.broker.replication.set_state import Directory
from kafka2011.coordination.paths import BrokerAddress
from kafka2011.protocol.errors import RemoteProtocolError
from kafka2011.protocol.lineage import Lineage
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)

TICK_S = 0.1
# Pause after a cut that failed (the storage has logged why); it doubles.
CUT_AGAIN_S = 1.0
CUT_AGAIN_MAX_S = 30.0


class Clients(Protocol):
    """The client port."""

    def open(self) -> None:
        """Open the port. Raises OSError: it cannot be taken."""

    def hang_up(self) -> None: ...
    def pause(self, paused: bool) -> None: ...

    def drained(self) -> bool:
        """Whether everything that has arrived is written; asked while clients are paused."""


class Requests(Protocol):
    def put(self, request: Request) -> None: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Which replica of which set this is."""

    cluster_id: str
    broker_id: int
    name: str
    directory: Directory


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a replica; `catch_up_bytes_per_s` 0: no limit."""

    catch_up_bytes_per_s: int
    unconfirmed_bytes: int


class RunningReplica:
    """A replica at work: `start` it before or while the loop runs, `hand_over` before a stop."""

    def __init__(
        self,
        identity: Identity,
        machine: Replica,
        *,
        storage: ReplicaStorage,
        disk: DiskScheduler,
        loop: Any,
        poller: Poller,
        clients: Clients,
        entry_bytes_max: int,
        limits: Limits,
        refuse_appends: Callable[[str], None],
        failed: Callable[[str, bool], None],
        moved: Callable[[], None],
    ) -> None:
        """`refuse_appends(reason)` makes clients' appends fail; with "" they are taken again.
        `failed(reason, of_disk)` is called when the process must end at once, as its promises might
        not hold; `moved` when another replica may have flushed more."""
        self.machine = machine
        self.port = ReplicaPort(loop, poller, self, identity.cluster_id, identity.broker_id)
        self.requests: Requests | None = None
        self._identity = identity
        self._storage = storage
        self._disk = disk
        self._loop = loop
        self._clients = clients
        self._entry_bytes_max = entry_bytes_max
        self._limits = limits
        rate = limits.catch_up_bytes_per_s
        self._catch_up_pace = Pace(rate) if rate else None
        self._refuse_appends = refuse_appends
        self._is_refusing = False
        self._failed = failed
        self._when_moved = moved
        self._events: deque[tuple[events.Event, Entries | None]] = deque()
        self._is_stepping = False
        self._is_over = self._is_stopping = False
        self._is_draining = False  # clients are paused, and Drained was not fed yet
        self._bringing: Entries | None = None  # of the Data that is being handed in
        self._copying: dict[int, Copying] = {}
        self._addresses: dict[Directory, BrokerAddress] = {}
        self._log_observer = LogObserver(loop, machine, self.feed, self._check_unconfirmed)
        self._verifying = Verifying(loop, storage, self.port)
        self._handover = Handover(loop, machine, identity.directory, self.feed)
        self._timer: Any = None

    # --- life ----------------------------------------------------------------------------------

    def start(self, requests: Requests) -> None:
        self.requests = requests
        self._storage.watch(self._log_observer)
        self._storage.decide_retention(self._retire)
        self.port.start()
        self.feed(events.LookAgain())
        self._tick()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self.port.check_progress()
        self.feed(events.Tick())
        if self._is_draining and self._clients.drained():
            self._is_draining = False
            self._log_observer.report()
            self.feed(events.Drained())
        self._check_unconfirmed()

    def close(self) -> None:
        """Stop taking part."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._verifying.close()
        self.port.close()

    def _end(self, reason: str, of_disk: bool = False) -> None:
        self.close()
        self._failed(reason, of_disk)

    def hand_over(self, done: Callable[[], None]) -> None:
        """Stop leading without loss, if another can take over in time; then call `done`."""
        self._is_stopping = True
        self._handover.begin(done)

    # --- the machine ---------------------------------------------------------------------------

    def feed(self, event: events.Event, bringing: Entries | None = None) -> None:
        self._events.append((event, bringing))
        if self._is_stepping or self._is_over:
            return
        self._is_stepping = True
        try:
            while self._events and not self._is_over:
                happened, self._bringing = self._events.popleft()
                for effect in self.machine.step(time.monotonic_ns() // 1_000_000, happened):
                    self._carry_out(effect)
        except Exception as error:  # half done: nothing that follows can be trusted
            _log.exception("internal_error")
            self._end(f"an internal error: {type(error).__name__}: {error}")
        finally:
            self._is_stepping = False
        self._when_moved()
        self._handover.look()

    @property
    def members_max(self) -> int:
        state = self.machine.context.state
        return len(state.members) if state is not None else 1

    def copies_of(self, partition: str, end: int) -> int:
        leader = self.machine.leads
        is_known = leader is not None and partition in self.machine.context.copies
        return leader.copies_of(partition, end) if leader is not None and is_known else 0

    def lineage_of(self, partition: str) -> Lineage:
        copy = self.machine.context.copies.get(partition)
        return copy.lineage if copy is not None else ()

    def _carry_out(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Send(link, frame):
                self._send(link, frame)
            case effects.Confirm(_, partition, watermark) | effects.Known(partition, watermark):
                self._storage.set_watermark(self._log_of(partition), watermark)
            case effects.Write():
                self._write()
            case effects.ReadState() | effects.WriteState() | effects.Register():
                assert self.requests is not None
                self.requests.put(effect)
            case effects.Journal(number, accepted, lineages, whole):
                self._storage.write_journal(
                    accepted, whole, lineages, lambda error: self._journalled(number, error)
                )
            case effects.CutLogs(steps):
                self._cut_logs(steps)
            case effects.Connect(link, directory):
                self._connect(link, directory)
            case effects.Close(link):
                self._copying.pop(link, None)
                self.port.finish(link)
            case effects.Canvass(number, directories):
                self._ask(Purpose.CANVASS, directories, number)
            case effects.Tell(directories):
                self._ask(Purpose.TELL, directories, 0)
            case effects.Retire(partition, start):
                self._storage.retire_below(self._log_of(partition), start)
            case effects.OpenLog(partition):
                self._storage.open_log(self._log_of(partition))
            case effects.OpenClients():
                self._open_clients()
            case effects.CloseClients():
                self._is_draining = False
                self._clients.hang_up()
                self._storage.stop_leading()
                _log.warning("replica_leads_no_more", broker_id=self._identity.broker_id)
            case effects.PauseProducers(pause):
                self._is_draining = pause
                self._clients.pause(pause)
            case effects.LosesConfirmed(partition, watermark, end):
                _log.error(
                    "replica_loses_confirmed", partition=partition, confirmed=watermark, left=end
                )
            case effects.Damaged(reason):
                _log.error("replica_damaged", reason=reason)
            case effects.StateOlder(found, known):
                states = {"epoch": found[0], "version": found[1]}
                states |= {"known_epoch": known[0], "known_version": known[1]}
                _log.error("replica_state_is_older", **states)
            case effects.AnswerBarrier():
                pass  # a connection's barrier waits for the logs' watermarks itself

    def _log_of(self, partition: str) -> Log:
        log = self._storage.log(partition)
        assert log is not None, f"no log {partition}"
        return log

    # --- clients -------------------------------------------------------------------------------

    def _open_clients(self) -> None:
        leader = self.machine.leads
        assert leader is not None
        for partition, floor in leader.floors.items():
            self._storage.set_floor(self._log_of(partition), floor)
        try:
            self._clients.open()
        except OSError as error:
            _log.error("client_port_not_open", reason=str(error))
            self._end(f"its client port cannot be opened: {error}")
            return
        _log.info(
            "replica_leads",
            broker_id=self._identity.broker_id,
            epoch=leader.epoch,
            in_sync=len(leader.known.isr),
        )
        # Logs made by an earlier leadership, which ended before it could open them.
        for name in self._storage.copies().keys() - self.machine.context.copies.keys():
            self.feed(events.LogMade(name))

    # --- disk ----------------------------------------------------------------------------------

    def _journalled(self, number: int, error: OSError | None) -> None:
        if error is None:
            self.feed(events.Journalled(number))
            return
        _log.error("replica_journal_failed", reason=str(error))
        self._end(f"its journal cannot be written: {error}", of_disk=True)

    def _cut_logs(self, steps: Mapping[str, Step], pause_s: float = CUT_AGAIN_S) -> None:
        """Cut until it succeeds: after half a cut, logs and lineages do not fit together."""
        later_s = min(2 * pause_s, CUT_AGAIN_MAX_S)

        def done(result: CutResult) -> None:
            if result.error is None:
                self.feed(events.LogsCut())
            elif not (self.machine.context.failed or self._is_over):
                self._loop.call_later(pause_s, self._cut_logs, steps, later_s)

        if not self._is_over:
            self._storage.cut_logs(steps, done)

    def _write(self) -> None:
        entries = self._bringing
        assert entries is not None
        log = self._log_of(entries.partition)
        try:
            self._storage.append_copied(
                log,
                entries.offset,
                entries.data,
                entries.checked,
                CopiedFrom(entries.segment_start, entries.segment_time_ms),
                refused=lambda error: self._not_written(log, error),
            )
        except (StorageFull, CopyMisplaced) as error:
            self._not_written(log, error)
        except PartitionError as error:
            _log.error("replica_write_failed", partition=log.name, reason=str(error))
            self.feed(events.LogFailed(log.name))

    def _not_written(self, log: Log, error: PartitionError) -> None:
        """Report what could not be written; a log that has failed, `LogObserver` reports."""
        if isinstance(error, (StorageFull, CopyMisplaced)):
            self._loop.call_soon(self._no_room, log, error)

    def _no_room(self, log: Log, error: PartitionError) -> None:
        context = self.machine.context
        if time.monotonic_ns() // 1_000_000 >= context.no_room_until_ms:
            if isinstance(error, StorageFull):
                _log.warning("replica_has_no_room", partition=log.name, reason=str(error))
            else:
                _log.error("replica_copy_misplaced", partition=log.name, reason=str(error))
        self.feed(events.NoRoom(log.name, log.log_end))

    def _check_unconfirmed(self) -> None:
        """Refuse appends while too many bytes are unconfirmed: a set that is too small confirms
        nothing, and what it takes fills the disk, and would be cut when another leads."""
        size = self.machine.unconfirmed_bytes
        is_too_much = size > self._limits.unconfirmed_bytes
        if is_too_much == self._is_refusing:
            return
        self._is_refusing = is_too_much
        reason = ""
        if is_too_much:
            reason = (
                f"{size:,} bytes wait for min_insync replicas to be in sync, above "
                "replica.unconfirmed.bytes.max"
            )
            _log.error("replica_refuses_appends", reason=reason)
        else:
            _log.info("replica_takes_appends")
        self._refuse_appends(reason)

    def _retire(self, log: Log, now_ms: int) -> Retirement | None:
        """Retire old segments: a leader's by the log's policy, a follower's as its leader says."""
        copy = self.machine.context.copies.get(log.name)
        if copy is None:
            return None
        if self.machine.leads is None:
            return log.retire_below(copy.start)
        limit = self.machine.retirable(log.name)
        if limit is None:
            return None
        job = log.retire(now_ms, limit)
        if log.start_offset > copy.start:
            self.feed(events.Retired(log.name, log.start_offset))
        return job

    # --- other replicas ------------------------------------------------------------------------

    def seen(self, addresses: Mapping[Directory, BrokerAddress]) -> None:
        """Note the addresses of live replicas. Others are kept: maybe only their sessions are
        gone."""
        self._addresses |= addresses

    def _greeting(self, purpose: Purpose) -> Greeting:
        mine = self._identity
        accepted = self.machine.context.accepted
        return Greeting(
            purpose, mine.cluster_id, mine.broker_id, mine.name, mine.directory, accepted
        )

    def _connect(self, link: int, directory: Directory) -> None:
        address = self._addresses.get(directory)
        if address is None:
            self.feed(events.Closed(link, refused=True))
        else:
            self._copying[link] = Copying(self._entry_bytes_max)
            self.port.connect(link, address)

    def _ask(self, purpose: Purpose, directories: frozenset[Directory], number: int) -> None:
        greeting = self._greeting(purpose)
        for directory in sorted(directories):
            address = self._addresses.get(directory)
            if address is not None:
                self.port.ask(address, greeting, self._answered_by(directory, number))

    def _answered_by(self, directory: Directory, number: int) -> Callable[[Canvassing], None]:
        return lambda answer: self.feed(
            events.Canvassed(number, directory, answer.accepted, answer.ends, answer.watermarks)
        )

    def _send(self, number: int, frame: Frame) -> None:
        link = self.port.get(number)
        if link is None:
            return
        match frame:
            case Hello():
                link.send(self._greeting(Purpose.FOLLOW), frame.accepted)
            case Welcome(verdict, epoch):
                link.send(frame, epoch)
                if verdict is Verdict.OK:
                    link.settle(epoch)
            case _:
                if isinstance(frame, (Data, Mark)):
                    link.pace = self._pace_of(number)
                link.send(frame)

    def _pace_of(self, link: int) -> Pace | None:
        """The pace of a link; None for a member in sync, which is sent all there is. Catching up
        must not take the disk and the network from members in sync."""
        leader = self.machine.leads
        member = leader.members.get(link) if leader is not None else None
        if leader is None or member is None or member.directory in leader.known.isr:
            return None
        return self._catch_up_pace

    def greeted(self, link: int, greeting: Greeting) -> None:
        self.feed(events.Received(link, Hello(greeting.directory, greeting.accepted)))

    def told(self, epoch: int) -> None:
        self.feed(events.LookAgain(epoch))

    def canvassed(self) -> Canvassing | None:
        """The answer to a candidate; None while stopping: the next leader would wait for it."""
        return None if self._is_stopping else self.machine.canvassed()

    def verify(self, link: int) -> None:
        self._verifying.begin(link)

    def begin_anew(self, directory: str) -> None:
        if directory == self._identity.directory:
            self.feed(events.BeginAnew())

    def connected(self, link: int) -> None:
        self.feed(events.Connected(link))

    def closed(self, link: int, refused: bool) -> None:
        self._copying.pop(link, None)
        self.feed(events.Closed(link, refused))

    def frame(self, link: int, frame: Wire) -> None:
        """Take a frame of a link. Raises ProtocolError: the link is then closed."""
        if isinstance(frame, Chunk):
            self._take_chunk(link, frame)
            return
        if isinstance(frame, (Canvassing, Greeting, Sums)):
            raise RemoteProtocolError(f"a {type(frame).__name__} on a link")
        if isinstance(frame, Welcome) and frame.verdict is Verdict.OK:
            found = self.port.get(link)
            if found is not None:
                found.settle(frame.epoch)
        self.feed(events.Received(link, frame))

    def _take_chunk(self, number: int, chunk: Chunk) -> None:
        copying = self._copying.get(number)
        log = self._storage.log(chunk.partition)
        if copying is None or log is None:
            raise RemoteProtocolError(f"a chunk of {chunk.partition}, which is not copied here")
        try:
            entries = copying.take(chunk)
        except PartitionError as error:
            raise RemoteProtocolError(f"{chunk.partition}: {error}") from None
        if entries is None:
            return
        if log.log_end != entries.offset:
            raise RemoteProtocolError(
                f"{chunk.partition}: a chunk at {entries.offset}, the log ends at {log.log_end}"
            )
        self.feed(
            events.Received(number, Data(chunk.partition, entries.offset, entries.end)), entries
        )
        link = self.port.get(number)
        if log.is_held and link is not None:
            # Entries that wait for a new segment are held in memory: take no more until then.
            link.hold_reading()
            barrier = Barrier(lambda _: self._loop.call_soon(link.read_on))
            log.when_written(log.log_end, barrier)
            barrier.seal()

    def read_chunk(self, partition: str, offset: int, size_max: int) -> tuple[Chunk, FileRegion]:
        piece = self._storage.read_written(self._log_of(partition), offset, size_max)
        if piece is None:
            raise OSError(f"{partition} has nothing at {offset}")
        chunk = Chunk(partition, offset, piece.segment_start, piece.time_ms, b"")
        return chunk, piece.region

    def warm_up(self, job: Job, done: Callable[[Any], None]) -> None:
        self._disk.read(job, done)
