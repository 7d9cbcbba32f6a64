"""How far one source partition is copied, and what may be done with it next. Pure.

The offsets of a copy, in the source's log:

    confirmed_offset     durable at the target: the only offset that is ever committed
    sent_offset          sent to the target since the last barrier
    fetch_offset         fetched, waiting to be sent

    confirmed <= sent <= fetch, and all three fall back to confirmed when anything goes wrong: what
    was not confirmed is then fetched and sent again, in order. That repeats messages at the
    target, but never loses one.

A copy that failed is `suspect`: until all that had been sent is confirmed it is sent alone, one set
and one barrier at a time, so that a partition which the target refuses does not hold up its
neighbours, and repeats little. A set that is refused then is halved, down to one entry; sets that
go through let the next ones grow again. Times are seconds of one monotonic clock. Callers hold the
mirror's lock.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kafka2011.consumer.broker_loop import Backoff
from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.protocol.lineage import Lineage, Parted, history
from kafka2011.services.mirror_maker.offset_map import OffsetMap
from kafka2011.services.mirror_maker.set_cutting import RefusedEntry, leading_piece

PASSES_BEFORE_GROWTH = 8  # sets that go through before larger ones are tried again


@dataclass(slots=True)
class PartitionCopy:
    """One owned source partition. `start_offset` None: the source is asked for it first."""

    name: TopicPartition
    thread: str
    start_offset: int | None
    bytes_max: int
    fetch_size: int
    backoff: Backoff

    target: BrokerPartition | None = None
    confirmed_offset: int = -1
    sent_offset: int = -1
    fetch_offset: int = -1
    committed_offset: int | None = None
    epoch: int = 0  # changes at each rewind, so that a fetch begun before it is not used
    is_suspect: bool = False
    is_paused: bool = False
    is_closing: bool = False  # no more is sent; the last barrier is awaited
    is_removed: bool = False  # not ours any more
    refusal: str = ""  # why it is stopped until an operator acts
    refused: RefusedEntry | None = None  # the last that the target refuses; it may be stopped there
    refused_entries: int = 0
    left_out_entries: int = 0  # of these
    has_wrappers: bool = False  # in the last set that was examined; the reader's
    trouble: str = ""  # the last failure, while it is being retried
    source_end: int | None = None
    source_end_ms: int = 0  # when that was asked for, ms since the epoch
    owned_ms: int = 0  # since when it is copied here, ms since the epoch
    confirmed_at_s: float = 0.0
    copied_bytes: int = 0
    copied_sets: int = 0
    copied_messages: int = 0  # durable; a compressed set counts as one
    repeated_bytes: int = 0  # sent again, or possibly
    skipped_bytes: int = 0  # gone from the source before they were copied
    lineage: Lineage = ()  # of the source's log, if it is a replica set's; the reader's
    stored_lineage: Lineage = ()  # as stored beside the committed offset
    log_seen: tuple[int, int] = (0, 0)  # the reader's connection on which the log was last checked
    cut_to: int | None = None  # to be committed before the lineage is stored
    cut_bytes: int = 0  # copied, but not in the source any more
    source_restarts: int = 0  # another log was found at the source, and read from its start
    rewinds: int = 0
    offsets: OffsetMap | None = None  # kept when the target partition is fixed
    mapped_at_s: float = 0.0
    latency_ms: int | None = None  # of the newest sample: event made -> durable at the target
    _attempt: int = 0
    _retry_at_s: float = 0.0
    _fetch_retry_at_s: float = 0.0
    _fetch_attempt: int = 0
    _queue: deque[tuple[Chunk, int]] = field(default_factory=deque)  # with its message count
    _sent: deque[tuple[int, int]] = field(default_factory=deque)  # (next offset, message count)
    _held_bytes: int = 0  # queued and sent, until confirmed
    _set_bytes_max: int = 0  # of the next set: larger ones were refused; 0: no limit
    _passed: int = 0  # sets in a row that went through
    _suspect_to: int = 0  # the sent offset at the failure that made it suspect
    _alone: Chunk | None = None  # sent while suspect, if it is one entry

    def __post_init__(self) -> None:
        if self.start_offset is not None:
            self.committed_offset = self.start_offset
            self.jump(self.start_offset)

    # --- fetching --------------------------------------------------------------------------------

    @property
    def is_started(self) -> bool:
        """Whether it is known where to start."""
        return self.confirmed_offset >= 0

    def jump(self, offset: int) -> None:
        """Go on from `offset`. Nothing may be under way (`is_quiet`)."""
        assert self.is_quiet
        self.epoch += 1
        self.confirmed_offset = self.sent_offset = self.fetch_offset = offset
        if self.offsets is not None:
            self.offsets.interrupt()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing fetched waits and nothing sent is unconfirmed."""
        return not self._queue and self.sent_offset == self.confirmed_offset

    def wants_fetch(self, now_s: float) -> bool:
        return (
            self.target is not None
            and not (self.is_paused or self.is_closing or self.is_removed or self.refusal)
            and now_s >= self._retry_at_s
            and now_s >= self._fetch_retry_at_s
            and self._held_bytes < self.bytes_max
        )

    def fetched(self, epoch: int, chunk: Chunk, message_count: int) -> bool:
        """Queue what a fetch begun in `epoch` brought; False when it is out of date."""
        if epoch != self.epoch or self.is_closing or self.is_removed:
            return False
        assert chunk.offset == self.fetch_offset
        self._queue.append((chunk, message_count))
        self._held_bytes += len(chunk.data)
        self.fetch_offset = chunk.next_offset
        self._fetch_attempt = 0
        self._fetch_retry_at_s = 0.0
        if self.source_end is not None:
            self.source_end = max(self.source_end, chunk.next_offset)
        return True

    def found_end(self, epoch: int, asked_ms: int) -> None:
        """Note that a fetch begun in `epoch`, at `asked_ms`, found nothing: the log ended here."""
        if epoch == self.epoch:
            self.source_end = self.fetch_offset
            self.source_end_ms = asked_ms
            self._fetch_attempt = 0
            if self.is_quiet and not self._attempt:
                self.trouble = ""

    def forget_the_future(self, now_ms: int) -> None:
        """Forget when the source's end was known if that is later than now, as where the clock was
        ahead: it would seem to be of the present until the clock is there again."""
        if self.source_end_ms > now_ms:
            self.source_end_ms = 0
        self.owned_ms = min(self.owned_ms, now_ms)

    def source_failed(self, now_s: float, reason: str) -> None:
        """Retry later: the source refused this partition."""
        self._fetch_attempt += 1
        self._fetch_retry_at_s = now_s + self.backoff.pause_s(self._fetch_attempt)
        self.trouble = reason

    def refuse(self, reason: str) -> None:
        """Stop at what is confirmed, until the process is restarted."""
        self.refusal = reason
        self._forget()

    # --- the source is a replica set --------------------------------------------------------------

    def reads(self, log: Lineage) -> None:
        """Note that what is read now, and all that was read, is in a log of that lineage."""
        self.lineage = history(log)

    def go_back(self, parted: Parted, log: Lineage) -> None:
        """Go on from where the logs diverged. Nothing may be under way."""
        self.jump(parted.first)
        self.reads(log)
        self.cut_bytes += parted.last - parted.first
        self.cut_to = min(parted.first, self.cut_to if self.cut_to is not None else parted.first)
        if self.offsets is not None:
            self.offsets.forget_from(parted.first)

    @property
    def has_lineage_to_store(self) -> bool:
        """Whether the lineage is new and may be stored: what is committed is in a log of it."""
        return self.lineage != self.stored_lineage and self.cut_to is None

    @property
    def next_commit(self) -> int | None:
        """The offset to commit, perhaps the committed one; None: commit nothing until the lineage
        is stored.

        Lineage and offset are two writes. The stored lineage must hold for the offset at any time:
        so the point where the logs diverged is committed first, then the new lineage is stored,
        then later offsets are committed.
        """
        if not self.is_started:
            return None
        if self.cut_to is not None:
            return self.cut_to
        return self.confirmed_offset if self.lineage == self.stored_lineage else None

    def committed(self, offset: int) -> None:
        self.committed_offset = offset
        if offset == self.cut_to:
            self.cut_to = None

    @property
    def uncommitted_bytes(self) -> int:
        """How many bytes have become durable at the target since the last commit."""
        if self.committed_offset is None or not self.is_started:
            return self.copied_bytes
        return max(0, self.confirmed_offset - self.committed_offset)

    # --- sending ---------------------------------------------------------------------------------

    def is_ready(self, now_s: float) -> bool:
        """Whether something waits to be sent, and may be sent now."""
        return (
            bool(self._queue)
            and not (self.is_paused or self.is_closing or self.is_removed)
            and now_s >= self._retry_at_s
        )

    def take(self) -> Chunk | None:
        """The next set to send, if any; it counts as sent."""
        if not self._queue or self.is_paused or self.is_closing or self.is_removed:
            return None
        chunk, message_count = self._queue.popleft()
        assert chunk.offset == self.sent_offset
        if message_count > 1 and 0 < self._set_bytes_max < len(chunk.data):
            chunk, message_count = self._halved(chunk, message_count)
        self._alone = chunk if self.is_suspect and message_count == 1 else None
        self.sent_offset = chunk.next_offset
        self._sent.append((chunk.next_offset, message_count))
        return chunk

    def _halved(self, chunk: Chunk, message_count: int) -> tuple[Chunk, int]:
        """The first entries of a set; the others go back to the queue."""
        end, entry_count = leading_piece(chunk.data, self._set_bytes_max)
        middle = chunk.offset + end
        rest = chunk._replace(offset=middle, data=chunk.data[end:])
        if rest.data:
            self._queue.appendleft((rest, message_count - entry_count))
        return chunk._replace(data=chunk.data[:end], next_offset=middle), entry_count

    def confirm(self, offset: int, now_s: float) -> None:
        """Note that a barrier showed everything below `offset` to be durable at the target."""
        if self.is_removed:
            return
        assert self.confirmed_offset <= offset <= self.sent_offset
        moved = offset - self.confirmed_offset
        self.confirmed_offset = offset
        self._held_bytes -= moved
        self.copied_bytes += moved
        while self._sent and self._sent[0][0] <= offset:
            self.copied_messages += self._sent.popleft()[1]
        self.confirmed_at_s = now_s
        self._grow_sets()
        self.is_suspect = self._set_bytes_max > 0 or offset < self._suspect_to
        self._alone = None
        self._attempt = 0
        self._retry_at_s = 0.0
        self.trouble = ""

    def _grow_sets(self) -> None:
        self._passed += 1
        if self._passed < PASSES_BEFORE_GROWTH:
            return
        self._passed = 0
        self._set_bytes_max *= 2
        if self._set_bytes_max >= self.fetch_size:
            self._set_bytes_max = 0

    def rewind(
        self, now_s: float, reason: str, *, is_blamed: bool, is_refusal: bool = False
    ) -> Chunk | None:
        """Begin again from what is confirmed: something went wrong since the last barrier.

        `is_blamed`: it may be this partition's fault, so it pauses longer each time and is sent
        alone. Otherwise (the whole target is away) it goes on when the target does. `is_refusal`:
        the target hung up. Returns the one entry that was refused, if that is known.
        """
        self.trouble = reason
        self.rewinds += 1
        self.repeated_bytes += self.unconfirmed_bytes
        alone = self._alone if is_refusal else None
        if is_blamed:
            if is_refusal and self.is_suspect and alone is None and self.unconfirmed_bytes:
                self._set_bytes_max = max(1, self.unconfirmed_bytes // 2)
                self._passed = 0
                self._attempt = 0  # each halving is progress
            self._suspect_to = self.sent_offset if not self.is_suspect else self._suspect_to
            self.is_suspect = True
            self._attempt += 1
            self._retry_at_s = now_s + self.backoff.pause_s(self._attempt)
        self._forget()
        return alone

    def met_refused(self, entry: RefusedEntry) -> None:
        """Note that the target refuses this entry; the copy stays there until it goes through or is
        left out."""
        if self.refused is None or self.refused.offset != entry.offset:
            self.refused_entries += 1
        self.refused = entry
        self.trouble = entry.text

    def leave_out(self, entry: RefusedEntry) -> bool:
        """Go on behind `entry`; False when the copy is not just before it any more."""
        if self.is_removed or self.is_closing:
            return False
        if not self.confirmed_offset == self.sent_offset == entry.offset:
            return False
        self._forget()
        self.jump(entry.next_offset)
        self.left_out_entries += 1
        self.trouble = ""
        self._attempt = 0
        self._retry_at_s = 0.0
        return True

    def _forget(self) -> None:
        self.epoch += 1
        self._queue.clear()
        self._sent.clear()
        self._alone = None
        self._held_bytes = 0
        self.sent_offset = self.fetch_offset = self.confirmed_offset

    # --- the end ---------------------------------------------------------------------------------

    def begin_closing(self) -> None:
        """Send nothing more; what was sent may still be confirmed."""
        self.is_closing = True
        self._queue.clear()
        self.fetch_offset = self.sent_offset
        self._held_bytes = max(0, self.sent_offset - self.confirmed_offset)

    def remove(self) -> None:
        """End the copy, as it is not ours any more: no late answer changes anything."""
        self.is_removed = True
        self._forget()

    # --- status ----------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The state: `copying`, `waiting` (for the target or the source), `paused`, `refused`,
        `placing` (no target yet), or `closing`."""
        if self.refusal or self.stands_at_refused:
            return "refused"
        if self.is_closing or self.is_removed:
            return "closing"
        if self.is_paused:
            return "paused"
        if self.target is None:
            return "placing"
        return "waiting" if self.trouble or not self.is_started else "copying"

    @property
    def stands_at_refused(self) -> bool:
        return self.refused is not None and self.refused.offset == self.confirmed_offset

    @property
    def lag_bytes(self) -> int | None:
        """The source's end minus what is confirmed; None before the end is known. It is as of
        `source_end_ms`: while the source does not answer, the present lag may be larger."""
        if self.source_end is None or not self.is_started:
            return None
        return max(0, self.source_end - self.confirmed_offset)

    def lag_bytes_since(self, asked_ms: int) -> int | None:
        """`lag_bytes`; None also if the end was asked for before `asked_ms`."""
        return self.lag_bytes if self.source_end_ms >= asked_ms else None

    def source_end_age_ms(self, now_ms: int) -> int:
        """The time since the source's end was last known, or since the copy began; ms."""
        return max(0, now_ms - max(self.source_end_ms, self.owned_ms))

    @property
    def unconfirmed_bytes(self) -> int:
        return max(0, self.sent_offset - self.confirmed_offset)

    def next_event_s(self) -> float:
        """When this copy's pause ends, in seconds; a time in the past: there is none."""
        return max(self._retry_at_s, self._fetch_retry_at_s)


def choose_batch(
    copies: Iterable[PartitionCopy], now_s: float, *, after_alone: bool
) -> list[PartitionCopy]:
    """The copies whose sets go out before the next barrier.

    These are either all ready ones that are not suspect, or one suspect alone. When both are
    waiting they take turns; `after_alone`: the last batch was a suspect's.
    """
    ready = [copy for copy in copies if copy.is_ready(now_s)]
    trusted = [copy for copy in ready if not copy.is_suspect]
    suspects = [copy for copy in ready if copy.is_suspect]
    if suspects and (not trusted or not after_alone):
        return [min(suspects, key=lambda copy: copy.confirmed_at_s)]
    return trusted


def choose_target(
    source: BrokerPartition,
    sources: Sequence[BrokerPartition],
    targets: Sequence[BrokerPartition],
    taken: Iterable[BrokerPartition],
) -> BrokerPartition:
    """The target for a source partition that has none: one of those with the fewest sources.

    Among those the choice follows the source's rank among `sources`, so that members that choose at
    the same moment, unaware of each other, still choose different ones. In that order brokers
    alternate before partitions: two sources go to two brokers.
    """
    assert targets
    load = dict.fromkeys(targets, 0)
    for target in taken:
        if target in load:
            load[target] += 1
    least = min(load.values())
    free = sorted(
        (target for target in targets if load[target] == least),
        key=lambda target: (target.partition, target.broker_id),
    )
    order = sorted({*sources, source}, key=lambda one: (one.partition, one.broker_id))
    ordered = sorted(targets, key=lambda target: (target.partition, target.broker_id))
    wanted = ordered[order.index(source) % len(ordered)]
    return wanted if wanted in free else free[order.index(source) % len(free)]
