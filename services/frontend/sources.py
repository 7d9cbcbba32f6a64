"""Sources of a frontend's events, in batches with a position to resume after.

A source belongs to a run: its `descriptor` identifies its input, and a run resumes only with an
equal one. `next_batch` never blocks: a batch without events has the time to wait.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kafka2011.events.codec import prefix_of
from kafka2011.producer.counting.journal import Position
from kafka2011.producer.tail.messages import digest_of
from kafka2011.runtime.clock import Clock
from kafka2011.services.frontend.access_log import LineEncoder
from kafka2011.services.frontend.delivery import Event
from kafka2011.services.frontend.input_file import PLAIN, InputFile, kind_of
from kafka2011.services.frontend.lines import Line, LineReader, LongLine, bytes_before
from kafka2011.services.frontend.log_format import FORMAT_DEFAULT, parser_of
from kafka2011.services.frontend.synthetic import ActivityEncoder, due_count, schedule_ms

BATCH_EVENTS_MAX = 500
CHUNKS_MAX = 16
NO_EVENTS_WAIT_MS = 60_000


@dataclass(slots=True)
class Batch:
    """Events and the position after them; without events, `wait_ms` until there may be some.

    `is_to_be_stored`: the position must be in the journal before the next batch is sent. `keys`:
    the events' keys, None for an event without one; empty if none has one.
    """

    events: list[Event]
    position: Position
    wait_ms: int = 0
    is_to_be_stored: bool = False
    keys: Sequence[int | str | None] = ()


class Source(Protocol):
    def next_batch(self) -> Batch | None:
        """The next batch; None at the end of the source."""

    def close(self) -> None: ...


class NoEvents:
    """A source without events; it has no end."""

    @staticmethod
    def descriptor() -> Any:
        return {"kind": "none"}

    def next_batch(self) -> Batch:
        return Batch([], None, NO_EVENTS_WAIT_MS)

    def close(self) -> None:
        """Nothing to close."""


class SyntheticSource:
    """Synthetic activity at its scheduled times. Position: [events made, start of the schedule].

    Overdue events are made at once, with the times at which they were due. But if they are more
    than `catch_up_ms` late (after a pause of this process, the brokers or the machine; negative:
    never), the schedule begins anew, with the next event now. The new start is in the journal
    before that event is sent. `sent_max`: how many events behind the position may have been sent
    before; those keep their times, or they would be counted twice in different windows.
    """

    def __init__(
        self,
        *,
        seed: int,
        rate: int,
        count_max: int | None,
        run_id: bytes,
        start_ms: int,
        server: str,
        service: str,
        clock: Clock,
        position: Position = None,
        prefix: Callable[[str], bytes] = prefix_of,
        catch_up_ms: int = -1,
        sent_max: int = 0,
        keys_items: bool = False,
    ) -> None:
        # In journals of older versions it is the number alone.
        at = position if isinstance(position, list) else [position or 0, start_ms]
        self._next: int = at[0]
        self._start_ms: int = at[1]
        self._encoder = ActivityEncoder(
            seed,
            run_id=run_id,
            server=server,
            service=service,
            rate=rate,
            start_ms=self._start_ms,
            prefix=prefix,
            keys_items=keys_items,
        )
        self._rate = rate
        self._count_max = count_max
        self._clock = clock
        self._catch_up_ms = catch_up_ms
        self._unsent = self._next + sent_max

    @staticmethod
    def descriptor(seed: int, rate: int, count_max: int | None) -> Any:
        return {"kind": "synthetic", "seed": seed, "rate": rate, "count": count_max}

    def next_batch(self) -> Batch | None:
        if self._count_max is not None and self._next >= self._count_max:
            return None
        now_ms = self._clock()
        due_ms = schedule_ms(self._next, self._rate, self._start_ms)
        is_late = 0 <= self._catch_up_ms < now_ms - due_ms
        if is_late and self._next >= self._unsent:
            self._start_ms = self._encoder.start_ms = now_ms - self._next * 1000 // self._rate
            return Batch([], self._position(), is_to_be_stored=True)
        end = due_count(now_ms, self._rate, self._start_ms)
        if self._count_max is not None:
            end = min(end, self._count_max)
        end = min(end, self._next + BATCH_EVENTS_MAX)
        if is_late:
            end = min(end, self._unsent)
        if end <= self._next:
            return Batch([], self._position(), max(1, due_ms - now_ms))
        encode, key = self._encoder.encode, self._encoder.key
        numbers = range(self._next, end)
        made = [(encode(number), key(number)) for number in numbers]  # draws each block once
        self._next = end
        return Batch([one for one, _ in made], self._position(), keys=[key for _, key in made])

    def _position(self) -> Position:
        return [self._next, self._start_ms]

    def close(self) -> None:
        """Nothing to close."""


class Pace:
    """Limits lines to `rate` a second, from its creation on; 0: no limit."""

    def __init__(self, rate: int, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._start_ms = clock()
        self._taken = 0

    def due(self, most: int) -> int:
        """How many lines may be taken now, at most `most`; below 1: none for `wait_ms`."""
        if not self._rate:
            return most
        return min(most, due_count(self._clock(), self._rate, self._start_ms) - self._taken)

    def wait_ms(self) -> int:
        """Time until the next line is due, ms, at least 1."""
        return max(1, schedule_ms(self._taken, self._rate, self._start_ms) - self._clock())

    def took(self, count: int) -> None:
        self._taken += count


class AccessLogSource:
    """The lines of a file to its end. Position: [byte offset, line number, anchor] behind the last
    line, the offset in the unpacked text. The anchor is the SHA-256 of the bytes in front of it, as
    in the tailer's positions (producer.tail); older versions stored none.

    `rate` lines a second, 0 without limit. Raises OSError when the file cannot be read, and
    InputRefused when its packed data is damaged.
    """

    def __init__(
        self,
        path: Path,
        *,
        run_id: bytes,
        server: str,
        service: str,
        clock: Clock,
        rate: int = 0,
        position: Position = None,
        prefix: Callable[[str], bytes] = prefix_of,
        log_format: str = FORMAT_DEFAULT,
    ) -> None:
        self._file = InputFile(path)
        self._position: Position = position or [0, 0]
        self._reader = LineReader(self._file, *self._position[:2])
        parser = parser_of(log_format)
        self._encoder = LineEncoder(run_id, server, service, clock, prefix, parser=parser)
        self._pace = Pace(rate, clock)
        self._ready: list[Line | LongLine] = []
        self._is_over = False

    @staticmethod
    def descriptor(path: Path) -> dict[str, Any]:
        """The file's identity; another file under the same name is another source."""
        status = os.stat(path)
        return {
            "kind": "access-log",
            "path": str(path.absolute()),
            "device": status.st_dev,
            "inode": status.st_ino,
        }

    @staticmethod
    def descriptor_of_missing(path: Path) -> dict[str, Any]:
        """The descriptor while there is no file of this name."""
        return {"kind": "access-log", "path": str(path.absolute()), "device": -1, "inode": -1}

    @staticmethod
    def can_continue(path: Path, position: Position) -> bool:
        """Whether the file can be read on: False if it was written anew, so that it holds something
        else in front of the position, or is shorter. A packed one is unpacked up to there. Raises
        as `InputFile`."""
        if position is None:
            return True
        offset, _, *anchor = position
        if anchor:
            with InputFile(path) as file:
                return digest_of(bytes_before(file, offset)) == str(anchor[0])
        return kind_of(path) != PLAIN or bool(os.stat(path).st_size >= offset)

    def next_batch(self) -> Batch | None:
        allowed = self._pace.due(BATCH_EVENTS_MAX)
        if allowed < 1:
            return Batch([], self._position, self._pace.wait_ms())
        lines = self._take(allowed)
        if lines:
            self._pace.took(len(lines))
            end = lines[-1].end
            self._position = [end, lines[-1].number, digest_of(self._reader.before(end))]
            encode = self._encoder.encode
            return Batch([encode(line) for line in lines], self._position)
        if self._is_over:
            return None
        return Batch([], self._position)

    def _take(self, count: int) -> list[Line | LongLine]:
        chunks = 0
        while not self._ready and not self._is_over:
            if chunks == CHUNKS_MAX:  # inside a very long line: let deliveries go on meanwhile
                return []
            chunks += 1
            self._ready = self._reader.next_lines()
            if self._reader.at_end:
                last = self._reader.last_line()
                self._ready = [] if last is None else [last]
                self._is_over = True
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def close(self) -> None:
        self._file.close()
