"""The log against a model that is a list of bytes: crashes, power losses, rolls, retention, clocks.

Hypothesis draws sequences of operations on a real log over real files with a disk that forgets
(`FaultyFileLayer`), and after each step the log must be what the model says. The promises of
docs/guarantees.md as invariants: what was visible stays, byte for byte, at its offset (G1, G2); the
log is whole entries in order, without a gap; nothing that was not appended ever appears.

`ReplicaLogModel` is the log of a replica, where what is flushed is not yet confirmed: the two ends
are anywhere, and each use has to have taken the right one.
"""

import errno
import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka2011.broker.log import recovery
from kafka2011.broker.log.barrier import Barrier
from kafka2011.broker.log.cutting import CutKind
from kafka2011.broker.log.errors import CopyMisplaced, OffsetNotInLog
from kafka2011.broker.log.file_region import FileRegion
from kafka2011.broker.log.log import LogState
from kafka2011.broker.log.log_cuts import LogCuts, Wanted
from kafka2011.broker.log.quarantine import Quarantine
from kafka2011.broker.log.recovery import Verdict
from kafka2011.broker.log.replica_journal import ReplicaIdentity
from kafka2011.broker.log.retention import by_age, by_size, each_in_turn
from kafka2011.broker.log.tail import CopiedFrom
from kafka2011.protocol import message_set
from kafka2011.protocol.requests import EARLIEST, LATEST
from tests.support.logs import entry
from tests.unit.broker.data_directory import DataDirectory, some
from tests.vectors import vector

WRAPPERS = [vector(name) for name in ("S4", "S5", "S6", "S8", "S11")]
AGE_MS_MAX = 100_000


def read(region: FileRegion) -> bytes:
    data = os.pread(region.fd, region.count, region.position)
    region.release()
    return data


class Reader:
    """Waits for data; how it was called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def arrive(self) -> None:
        self.calls.append("data")

    def fail(self) -> None:
        self.calls.append("failed")


class LogModel(RuleBasedStateMachine):
    """`history` is every byte ever appended and not lost; `durable` the flushed end seen so far,
    `visible` what readers and barriers go by."""

    replica: ReplicaIdentity | None = None

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.disk = DataDirectory(self.directory)
        self.history = b""
        self.boundaries = {0}
        self.durable = 0
        self.visible = 0
        self.start = 0
        self.floor = 0
        self.barriers: list[tuple[int, list[bool]]] = []
        self.readers: list[tuple[int, Reader]] = []

    @initialize(segment_bytes=st.sampled_from([60, 700, 5000]), size=st.sampled_from([-1, 2000]))
    def begin(self, segment_bytes: int, size: int) -> None:
        retention = each_in_turn(by_age(AGE_MS_MAX), by_size(size))
        self.settings = {"segment_bytes_max": segment_bytes, "retention": retention}
        self.open()
        self.log.flush()

    def open(self) -> None:
        self.logs = self.disk.open(**self.settings, open_segments_max=3, replica=self.replica)
        self.barriers.clear()
        self.readers.clear()
        self.floor = 0
        # A directory that power loss took: nothing of it was ever visible.
        assert ("t", 0) in self.logs.logs or self.durable == 0
        self.held_bytes = 0
        self.logs.watch_held(self.count_held)
        self.log = self.logs.get_or_create("t", 0)
        self.log.open_for_appends()
        self.is_opened()
        assert self.log.state is LogState.ONLINE, self.log.state_reason

    def count_held(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes

    def is_opened(self) -> None:
        """The log is loaded: what is visible of it?"""
        self.visible = self.log.flushed_end

    # --- what a broker does --------------------------------------------------------------------

    @rule(
        payloads=st.lists(st.binary(max_size=1500), min_size=1, max_size=5),
        magic=st.integers(0, 1),
    )
    def append(self, payloads: list[bytes], magic: int) -> None:
        self.take(b"".join(entry(payload, magic) for payload in payloads), len(payloads))

    @rule(payload_bytes=st.integers(1500, 9000), seed=st.integers(0, 99))
    def append_large(self, payload_bytes: int, seed: int) -> None:
        self.take(entry(random.Random(seed).randbytes(payload_bytes)), 1)

    @rule(wrapper=st.sampled_from(WRAPPERS))
    def append_compressed(self, wrapper: bytes) -> None:
        self.take(wrapper, 2)

    @rule()
    def append_nothing(self) -> None:
        self.take(b"", 0)

    def forget_beyond(self, end: int) -> None:
        self.history = self.history[:end]
        self.boundaries = {edge for edge in self.boundaries if edge <= end}

    def take(self, data: bytes, count: int) -> None:
        end = self.log.append(data, count, self.disk.clock())
        self.history += data
        assert end == len(self.history)
        for piece in message_set.entries(data):
            self.boundaries.add(end - len(data) + piece.next_offset)

    @rule(where=st.floats(0, 1), is_flush=st.booleans())
    def wait_for_what_is_durable(self, where: float, is_flush: bool) -> None:
        offset = int(where * self.log.log_end)
        outcome: list[bool] = []
        barrier = Barrier(outcome.append)
        (self.log.when_flushed if is_flush else self.log.when_confirmed)(offset, barrier)
        barrier.seal()
        if not is_flush:
            self.barriers.append((offset, outcome))
        else:
            assert outcome == [True] * (offset <= self.log.flushed_end)

    @rule(where=st.floats(0, 1))
    def wait_for_data(self, where: float) -> None:
        reader = Reader()
        offset = int(where * self.visible)
        self.log.when_readable_behind(offset, reader)
        self.readers.append((offset, reader))

    @rule()
    def write(self) -> None:
        self.log.write_gathered()

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def mark(self) -> None:
        job = self.logs.begin_marking()
        job.run()
        assert job.error is None

    @rule()
    def flush_while_appending(self) -> None:
        job = self.log.begin_flush()
        if job is not None:
            self.take(entry(b"during the flush"), 1)
            self.log.write_gathered()
            job.run()
            self.log.complete_flush(job)

    @rule(error=st.sampled_from([errno.ENOSPC, errno.EMFILE]), payload=st.binary(max_size=100))
    def no_room(self, error: int, payload: bytes) -> None:
        """The next write is refused, and all that waits behind it."""
        self.take(entry(payload), 1)
        kept = self.log.written_end if self.log.has_gathered else self.log.log_end
        self.disk.fail(error, "write_at")
        self.log.write_gathered()
        self.disk.files.fault = None
        assert self.log.log_end == kept
        self.history = self.history[:kept]
        self.boundaries = {edge for edge in self.boundaries if edge <= kept}
        refused = [outcome for offset, outcome in self.barriers if offset > kept]
        assert refused == [[False]] * len(refused)
        self.barriers = [waiting for waiting in self.barriers if waiting[0] <= kept]

    @rule(step_ms=st.sampled_from([1, 1000, AGE_MS_MAX + 1, -3_600_000, 31_536_000_000]))
    def clock_jumps(self, step_ms: int) -> None:
        self.disk.clock.advance(step_ms)

    @rule(is_removed=st.booleans(), fails_at=st.integers(0, 4))
    def retire(self, is_removed: bool, fails_at: int) -> None:
        job = self.log.retire(self.disk.clock())
        if job is None:
            return
        self.start = self.log.start_offset
        if is_removed:
            self.disk.fail(errno.EIO, "remove", "sync_directory", nth=fails_at)
            job.run()
            self.disk.files.fault = None
            self.log.complete_retirement(job)
            assert fails_at or job.error is None
        else:  # the process dies before the files are gone
            self.crash()

    @rule(where=st.floats(0, 1), size=st.integers(1, 4000))
    def read(self, where: float, size: int) -> None:
        offset = self.start + int(where * (self.visible - self.start))
        if offset == self.visible:
            assert self.log.read(offset, size) is None
        else:
            data = read(some(self.log.read(offset, size)))
            assert 0 < len(data) <= size
            assert data == self.history[offset : offset + len(data)]
            assert offset + len(data) <= self.visible

    @rule(where=st.floats(0, 1), size=st.integers(1, 4000))
    def read_for_a_follower(self, where: float, size: int) -> None:
        """What is written, flushed or not, with the segment that it stands in."""
        offset = self.start + int(where * (self.log.written_end - self.start))
        piece = self.log.read_written(offset, size)
        assert (piece is None) == (offset == self.log.written_end)
        if piece is not None:
            data = read(piece.region)
            assert data == self.history[offset : offset + len(data)]
            (holds,) = [one for one in self.log.segments if one.start == piece.segment_start]
            assert holds.start <= offset < offset + len(data) <= holds.end

    @rule(time_ms=st.sampled_from([LATEST, EARLIEST, 2**62]))
    def offsets_by_time(self, time_ms: int) -> None:
        found = self.log.offsets_before(time_ms, 2**31 - 1)
        first = self.start if time_ms == EARLIEST else self.visible
        assert found[0] == first
        starts = [one.start for one in self.log.segments if one.start < first]
        assert found[1:] == starts[::-1]

    @rule(beyond=st.sampled_from([1, 2, 10**6]))
    def read_outside(self, beyond: int) -> None:
        top = max(self.visible, self.floor)
        if self.visible < top:
            assert self.log.read(self.visible + 1, 100) is None
            assert self.log.read(top, 100) is None
        for offset in (self.start - beyond, top + beyond):
            with pytest.raises(OffsetNotInLog):
                self.log.read(offset, 100)

    # --- what happens to a broker --------------------------------------------------------------

    @rule()
    def clean_stop(self) -> None:
        assert self.disk.close()
        self.durable = len(self.history)
        self.open()
        assert self.log.flushed_end == len(self.history)

    @rule()
    def crash(self) -> None:
        """SIGKILL: what was written is kept, what was gathered is gone."""
        written = self.log.written_end
        self.disk.crash()
        self.reopen(at_least=written)
        assert self.log.flushed_end == written

    @rule(cut=st.integers(1, 3000))
    def crash_with_a_torn_write(self, cut: int) -> None:
        """The last write did not finish: any number of its bytes is missing."""
        written = self.log.written_end
        path, base = self.log.segments[-1].path, self.log.segments[-1].start
        self.disk.crash()
        size = path.stat().st_size
        kept = max(size - cut, self.durable - base, 0)
        os.truncate(path, kept)
        self.reopen(at_least=self.durable)
        whole = max(edge for edge in self.boundaries if edge <= base + kept)
        assert self.log.flushed_end == min(whole, written)

    @rule(tail=st.one_of(st.binary(min_size=1, max_size=600), st.integers(1, 3000).map(bytes)))
    def crash_with_garbage_behind(self, tail: bytes) -> None:
        written = self.log.written_end
        path = self.log.segments[-1].path
        found = recovery.examine(
            lambda count, position: tail[position : position + count], len(tail)
        )
        if found.valid_bytes or found.verdict is Verdict.CORRUPT:
            return  # garbage that is an entry by chance: 0.7's format cannot know it
        self.disk.crash()
        with path.open("ab") as segment:
            segment.write(tail)
        self.reopen(at_least=written)
        assert self.log.flushed_end == written

    @rule(seed=st.integers(0, 2**32))
    def power_loss(self, seed: int) -> None:
        self.disk.power_loss(random.Random(seed))
        self.reopen(at_least=self.durable)

    def reopen(self, at_least: int) -> None:
        self.open()
        end = self.log.flushed_end
        assert end >= at_least, f"{at_least - end} visible bytes are gone"
        assert end in self.boundaries, "the log ends inside an entry"
        self.forget_beyond(end)
        # A removal that was not flushed may come undone: older data again, never other data.
        assert self.log.start_offset <= self.start
        self.start = self.log.start_offset

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def ends_are_in_order(self) -> None:
        log = self.log
        assert log.flushed_end >= self.durable
        assert log.flushed_end <= log.written_end <= log.log_end
        self.durable = log.flushed_end
        self.visible_end_is_right()
        assert self.start <= self.visible == log.high_watermark <= self.durable

    def visible_end_is_right(self) -> None:
        self.visible = self.durable

    @invariant()
    def what_waits_is_answered_when_it_is_so_and_not_before(self) -> None:
        for offset, outcome in self.barriers:
            assert outcome == [True] * (offset <= self.visible)
        for offset, reader in self.readers:
            assert reader.calls == ["data"] * (offset < self.visible)

    @invariant()
    def what_is_visible_is_what_was_appended(self) -> None:
        offset = self.log.start_offset
        while (region := self.log.read(offset, 2**31 - 1)) is not None:
            data = read(region)
            assert len(data) == region.count
            assert data == self.history[offset : offset + len(data)]
            offset += len(data)
        assert offset == self.visible

    @invariant()
    def states_are_those_of_the_table(self) -> None:
        """The table of `broker.log.log`."""
        log = self.log
        assert not log.is_held or log.roll_waits
        assert not log.is_unopened
        assert not log.roll_waits or log.has_gathered or log.flushing or log.flush_wanted
        assert not log.flushing or log.flush_wanted
        assert log._pinned <= log.flush_wanted
        for segment in log.segments[:-1]:
            assert segment.users == 0
        assert log.segments[-1].users == log.flushing + log._pinned

    @invariant()
    def what_is_held_is_counted(self) -> None:
        assert self.held_bytes == sum(len(held.message_set) for held in self.log._held)

    @invariant()
    def segments_are_one_chain_on_disk(self) -> None:
        end = self.log.start_offset
        for segment in self.log.segments:
            assert segment.start == end
            assert segment.path.stat().st_size == segment.size
            assert segment.path.name == f"{segment.start:020d}.kafka"
            end = segment.end
        assert end == self.log.written_end

    def teardown(self) -> None:
        self.logs.unlock()
        self.disk.files.close_all()
        shutil.rmtree(self.directory)


class ReplicaLogModel(LogModel):
    """What is confirmed is said from outside; the log is led, or copied from a leader."""

    replica = ReplicaIdentity(0, "a")

    def __init__(self) -> None:
        super().__init__()
        self.confirmed = 0  # the most that ever was

    def is_opened(self) -> None:
        """What was known to be confirmed may lag, and never says more."""
        self.visible = self.log.high_watermark
        assert self.log.start_offset <= self.visible <= self.confirmed

    def visible_end_is_right(self) -> None:
        pass

    @rule(where=st.floats(0, 1.2))
    def confirm(self, where: float) -> None:
        offset = self.start + int(where * (self.log.written_end - self.start))
        self.log.ends.move_watermark(offset)
        self.visible = max(self.visible, min(offset, self.log.flushed_end))
        self.confirmed = max(self.confirmed, self.visible)

    @rule()
    def lead(self) -> None:
        self.floor = self.log.flushed_end
        self.log.lead_from(self.floor)

    @rule()
    def stop_leading(self) -> None:
        self.floor = 0
        self.log.stop_leading()
        assert self.log.log_end == self.log.written_end
        self.forget_beyond(self.log.log_end)
        assert all(outcome for _, outcome in self.barriers)
        assert all(reader.calls for _, reader in self.readers)
        self.barriers.clear()
        self.readers.clear()

    @rule(payloads=st.lists(st.binary(max_size=900), max_size=3), rolls=st.booleans())
    def copy(self, payloads: list[bytes], rolls: bool) -> None:
        """The leader's bytes, in its segments: they roll where it has rolled, and nowhere else."""
        data = b"".join(entry(payload) for payload in payloads)
        end = self.log.log_end
        starts = [one.start for one in self.log.segments]
        planned = self.log._held[-1].copied if self.log._held else None
        if planned is None and (self.log._held or self.log.has_gathered):
            self.stop_leading()
            end = self.log.log_end
        segment_start = end if rolls else planned.segment_start if planned else starts[-1]
        if rolls or not self.log.roll_waits:
            self.log.append_copied(end, data, len(payloads), CopiedFrom(segment_start, 5))
            self.history += data
            for piece in message_set.entries(data):
                self.boundaries.add(end + piece.next_offset)
            self.log.flush()
            assert segment_start in [one.start for one in self.log.segments]
            assert self.log.segments[-1].start == segment_start

    @rule(where=st.floats(0, 1), leads=st.booleans())
    def retire_up_to(self, where: float, leads: bool) -> None:
        """By the policy, what no follower needs; or what the leader has let go."""
        limit = self.start + int(where * (self.log.written_end - self.start))
        now_ms = self.disk.clock()
        job = self.log.retire(now_ms, limit) if leads else self.log.retire_below(limit)
        if job is None:
            return
        job.run()
        self.log.complete_retirement(job)
        if self.log.start_offset != self.start:
            assert self.log.start_offset <= min(limit, self.visible - leads)
        self.start = self.log.start_offset

    @rule(payload=st.binary(max_size=100))
    def copy_from_a_leader_that_did_not_roll(self, payload: bytes) -> None:
        self.log.flush()
        *_, before, last = [None, *self.log.segments]
        if before is not None and not last.size:
            data = entry(payload)
            self.log.append_copied(last.start, data, 1, CopiedFrom(before.start, 5))
            self.boundaries.add(len(self.history) + len(data))
            self.history += data
            self.log.write_gathered()
            assert self.log.segments[-1] is before

    @rule(data=st.data(), then=st.sampled_from(["", "crash", "power loss"]), seed=st.integers(0, 9))
    def cut(self, data: st.DataObject, then: str, seed: int) -> None:
        """To an entry above what is confirmed, or to any: of a copy that is not whole."""
        self.log.flush()
        edges = sorted(edge for edge in self.boundaries if edge >= self.start)
        end = data.draw(st.sampled_from(edges))
        cuts = LogCuts(
            self.logs, self.disk.files, Quarantine(self.disk.files, self.disk.quarantine)
        )
        job = cuts.begin({("t", 0): Wanted(CutKind.SHORTER, end)})
        job.run()
        cuts.complete(job)
        assert job.error is None
        self.forget_beyond(end)
        self.durable = end
        self.visible = min(self.visible, end)
        self.confirmed = min(self.confirmed, end)
        self.floor = 0
        self.barriers.clear()
        self.readers.clear()
        if then == "crash":
            self.crash()
        elif then:
            self.power_loss(seed)

    @rule(ahead=st.sampled_from([-1, 1, 100]))
    def copy_that_does_not_fit(self, ahead: int) -> None:
        with pytest.raises(CopyMisplaced):
            self.log.append_copied(self.log.log_end + ahead, b"", 0, CopiedFrom(0, 5))


MODEL = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestLogModel = LogModel.TestCase
TestLogModel.settings = MODEL
TestReplicaLogModel = ReplicaLogModel.TestCase
TestReplicaLogModel.settings = MODEL
