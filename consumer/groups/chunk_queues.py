"""From fetchers to streams: a bounded queue per stream, and the state of each owned partition.

Every piece in a queue was fetched under a grant; see `delivery`.
"""

import threading
import time
from collections import deque
from typing import NamedTuple, Protocol

from kafka2011.consumer.broker_loop import Backoff
from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.consumer.counting.group_counts import GroupCounts
from kafka2011.consumer.errors import ConsumerFailed, ConsumerTimeout, PartitionStuck
from kafka2011.consumer.groups.delivery import Delivered, Grant, GrantState

STUCK_BACKOFF = Backoff(1.0, 60.0)  # of a partition that cannot be read
DAMAGE_ATTEMPTS = 3  # fetches of a damaged entry before it is taken to be damaged on disk


class Waker(Protocol):
    """A thread that waits for room in a queue."""

    def wake(self) -> None: ...


class OwnedPartition:
    """One owned partition. Its fetcher owns the fetch fields, its stream the fields of the grant;
    the grant itself and `fetch_offset` change under the queue's lock."""

    __slots__ = (
        "base",
        "committed",
        "counts",
        "damage_count",
        "earlier",
        "failure_count",
        "fetch_offset",
        "fetch_size",
        "grant",
        "has_raised",
        "log_seen",
        "name",
        "queue",
        "reset_to",
        "retry_at_s",
        "stated",
        "thread",
    )

    def __init__(  # noqa: PLR0917
        self,
        name: TopicPartition,
        thread: str,
        queue: "ChunkQueue",
        stored: int | None,
        size: int,
        counts: GroupCounts | None = None,
    ) -> None:
        self.counts = counts
        self.name = name
        self.thread = thread
        self.queue = queue
        self.grant = Grant()
        self.earlier: list[Grant] = []  # before a reset; with what may still be delivered
        self.base = stored  # where it starts; None until the broker has answered
        self.committed = stored
        # By the application: where to go on, and what it had finished with when it said so.
        self.stated: tuple[int, Delivered | None] | None = None
        self.fetch_offset = stored
        self.reset_to: int | None = None  # where autooffset.reset moved it last
        self.fetch_size = size
        self.retry_at_s = 0.0
        self.failure_count = 0
        self.damage_count = 0
        self.has_raised = False
        # The fetcher's connection on which the log was last seen to be the one that was read.
        self.log_seen = (0, 0)

    def delivered_offset(self) -> int | None:
        """Next offset after what was delivered; None while not even the start is known."""
        last = self.grant.last
        return self.base if last is None else last.next_offset

    def processed_offset(self) -> int | None:
        """Next offset after what the application has finished with, which it may have stated."""
        with self.queue.lock:
            done = self.grant.done
            if self.stated is not None and self.stated[1] is done:
                return self.stated[0]
            return self.base if done is None else done.next_offset

    def state(self, offset: int) -> None:
        """The application states that it has finished with what is below `offset`: that counts
        until it comes back from more than it has now."""
        with self.queue.lock:
            self.stated = offset, self.grant.done

    def state_delivered(self) -> int | None:
        """As `state`, of all that was delivered; returns that offset, None when not even the start
        is known."""
        with self.queue.lock:
            # Before what is done with: whatever the stream goes on to, that is never behind it.
            offset = self.delivered_offset()
            if offset is not None:
                self.state(offset)
            return offset

    def move_to(self, offset: int) -> None:
        """Go on from `offset`; everything fetched or half delivered before is dropped."""
        with self.queue.lock:
            old, self.grant = self.grant, Grant()
            if old.state is GrantState.SUSPENDED:
                self.grant.suspend()
            for revoked in (*self._take_earlier(), old):
                revoked.revoke()
            self.stated = None
            self.base = self.fetch_offset = offset
            self.retry_at_s = 0.0
            self.has_raised = False
            if self.counts is not None:
                self.counts.move(self.name, offset)
            self.queue.lock.notify_all()

    def reset(self, grant: Grant, target: int) -> bool:
        """Go on from `target`: the log does not hold what follows what was fetched.

        What was fetched is still delivered, for it may be nowhere else any more, but it moves no
        position: its offsets are of a log that is gone, and would be false of the present one.
        False, and nothing changes, when `grant` is not the present one any more.
        """
        with self.queue.lock:
            if self.grant is not grant:
                return False
            self.grant = Grant()
            if grant.state is GrantState.SUSPENDED:
                self.grant.suspend()
            # Once something was delivered under a grant, all that came before it was, too.
            earlier = self._take_earlier() if grant.last is None else []
            has_fetched = grant.last is not None or self.fetch_offset != self.base
            self.earlier = [*earlier, grant] if has_fetched or self.has_raised else earlier
            self.stated = None
            self.fetch_offset = self.base = self.reset_to = target
            self.has_raised = False
            if self.counts is not None:
                self.counts.reset(self.name, target)
            return True

    def suspend(self) -> None:
        """Deliver nothing until `resume`."""
        with self.queue.lock:
            for grant in (*self.earlier, self.grant):
                grant.suspend()

    def resume(self) -> None:
        with self.queue.lock:
            for grant in (*self.earlier, self.grant):
                grant.resume()
            self.queue.lock.notify_all()

    def revoke(self) -> None:
        """Deliver nothing more of what was fetched."""
        with self.queue.lock:
            for grant in (*self._take_earlier(), self.grant):
                grant.revoke()

    def _take_earlier(self) -> list[Grant]:
        taken, self.earlier = self.earlier, []
        return taken

    def reread_from(self, offset: int, grant: Grant) -> Grant | None:
        """Fetch again from `offset`, up to which the stream has everything.

        What was fetched under `grant` is dropped; returns the grant that replaces it, or None when
        `grant` is revoked and the offset out of date. A grant from before a reset is returned as it
        is, and nothing is fetched again: the log does not hold it any more.
        """
        with self.queue.lock:
            if grant in self.earlier:
                return grant
            if self.grant is not grant:
                return None
            self.grant = Grant(grant)
            if grant.state is GrantState.SUSPENDED:
                self.grant.suspend()
            grant.revoke()
            self.fetch_offset = offset
            return self.grant

    def count(self, grant: Grant, chunk: Chunk, end: int) -> None:
        """Count the entries of `chunk` up to `end`, which the stream delivers, if `grant` holds and
        is not from before a reset."""
        if self.counts is None:
            return
        with self.queue.lock:  # a release comes before or after, not in between
            if grant is self.grant and grant.state is not GrantState.REVOKED:
                self.counts.took(chunk, end)

    def went_well(self) -> None:
        """Forget earlier failures: something of the partition could be read."""
        self.damage_count = self.failure_count = 0
        self.has_raised = False

    def put_aside(self) -> bool:
        """Stop fetching it for a while, longer each time; True if the stream is to raise it."""
        self.failure_count += 1
        self.damage_count = 0
        self.retry_at_s = time.monotonic() + STUCK_BACKOFF.pause_s(self.failure_count)
        is_new, self.has_raised = not self.has_raised, True
        return is_new

    def stuck(self, offset: int, cause: BaseException) -> PartitionStuck:
        error = PartitionStuck(*self.name, offset, str(cause))
        error.__cause__ = cause
        return error


class Queued(NamedTuple):
    owned: OwnedPartition
    grant: Grant
    item: Chunk | PartitionStuck


class ChunkQueue:
    """What was fetched for one stream: at most `chunks_max` chunks, counting those in flight."""

    def __init__(self, chunks_max: int) -> None:
        self._chunks_max = chunks_max
        self._items: deque[Queued] = deque()
        self._reserved = 0
        self._waiting: set[Waker] = set()
        self.lock = threading.Condition()
        self.closed = False
        self._failure: BaseException | None = None

    # --- the fetchers' side ----------------------------------------------------------------------

    def has_room(self) -> bool:
        return len(self._items) + self._reserved < self._chunks_max

    def reserve(self) -> bool:
        """Reserve room for one chunk; False if there is none."""
        with self.lock:
            if not self.has_room():
                return False
            self._reserved += 1
            return True

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be taken."""
        return not self._items

    def put_if_room(
        self, owned: OwnedPartition, grant: Grant, item: Chunk | PartitionStuck
    ) -> bool:
        """As `put`, without reserved room; a chunk is dropped, with False, if there is no room."""
        with self.lock:
            if isinstance(item, Chunk) and not self.has_room():
                return False
            self._reserved += 1
            return self.put(owned, grant, item)

    def wake_when_room(self, waker: Waker) -> None:
        """Wake `waker` as soon as there may be room: at once if there is."""
        with self.lock:
            if self.has_room():
                waker.wake()
            else:
                self._waiting.add(waker)

    def give_back(self) -> None:
        """Give up reserved room."""
        with self.lock:
            self._reserved -= 1
            self._wake()

    def put(self, owned: OwnedPartition, grant: Grant, item: Chunk | PartitionStuck) -> bool:
        """Put an item into reserved room; False when it was dropped, since the grant was revoked or
        the queue closed meanwhile."""
        with self.lock:
            self._reserved -= 1
            if self.closed or owned.grant is not grant:
                self._wake()
                return False
            if isinstance(item, Chunk):
                owned.fetch_offset = item.next_offset
            self._items.append(Queued(owned, grant, item))
            self.lock.notify()
            return True

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for waker in waiting:
            waker.wake()

    # --- the stream's side -----------------------------------------------------------------------

    def take(self, timeout_ms: int) -> Queued | None:
        """Wait for the next piece and return it; None after `close`.

        Raises ConsumerTimeout after `timeout_ms` (-1: never), ConsumerFailed after `fail`.
        """
        deadline = None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000
        with self.lock:
            while True:
                if self._failure is not None:
                    raise ConsumerFailed(
                        f"a thread of the consumer was ended by {self._failure!r}"
                    ) from self._failure
                if self.closed:
                    return None
                while self._items and self._items[0].grant.state is not GrantState.SUSPENDED:
                    found = self._items.popleft()
                    self._wake()
                    if found.grant.state is GrantState.OPEN:
                        return found
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    raise ConsumerTimeout(f"no message within {timeout_ms} ms")
                self.lock.wait(remaining)

    def await_grant(self, grant: Grant) -> bool:
        """Wait while the grant is suspended: True when it is open again, False when revoked."""
        with self.lock:
            while grant.state is GrantState.SUSPENDED and not self.closed:
                self.lock.wait()
            return grant.state is GrantState.OPEN and not self.closed

    # --- the connector's side --------------------------------------------------------------------

    def drop_revoked(self) -> None:
        """Drop items of revoked grants, and wake the threads that wait for room or for a grant."""
        with self.lock:
            self._items = deque(
                found for found in self._items if found.grant.state is not GrantState.REVOKED
            )
            self._wake()
            self.lock.notify_all()

    def close(self) -> None:
        """Drop everything and end the stream; further `take`s return None too."""
        with self.lock:
            self.closed = True
            self._items.clear()
            self._wake()
            self.lock.notify_all()

    def fail(self, failure: BaseException) -> None:
        """As `close`, but further `take`s raise ConsumerFailed."""
        with self.lock:
            self._failure = self._failure or failure
        self.close()
