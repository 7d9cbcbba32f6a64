"""A producer's journal: the confirmed counts and a source's position, on disk before use.

`sent` is called when the brokers have a batch on disk, before its sender relies on it. So after a
crash at any point the counts are at most what is stored (messages may be extra, never missing), and
a source resumes at a confirmed position; a producer without a source has none.
Monitoring events are journalled with their sequence before they are sent, and sent again until they
are known to be published, so that readers drop a repeat by (server, instance, sequence).

The file `journal` has one record a line, `<CRC-32 of the rest, 8 hex digits> <JSON>`:

    {"k": "state", ...}                               everything up to here; always the first record
    {"k": "run", "source", "run", "start_ms"}         another source: positions start over
    {"k": "sent", "position", "counts"}               counts = [[topic, window start, count, bytes]]
    {"k": "event", "sequence", "time", "counts"}      a monitoring event: takes counts out of sent
    {"k": "published", "sequence"}                    all up to this sequence are in topic audit
    {"k": "finished"}                                 the source has no more
    {"k": "stopped"}                                  a clean stop: nothing behind the position was
                                                      sent, until the next `sent`

A cut line at the end of the file was never relied upon and is removed. A bad line before that is
corruption: JournalCorrupt.
"""

import json
import os
import secrets
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka2011.events.windows import WindowCount, WindowCounts
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.storage_paths import lock_file, make_directory, sync_directory

Position = Any  # JSON, of the source

FILE = "journal"
COMPACT_BYTES = 1024 * 1024
# With this many cells a monitoring event has about 200 KB; a frontend offline for days has more.
CELLS_PER_EVENT_MAX = 5000
# The most bytes of a monitoring event without its cells, and of a cell without its topic.
EVENT_HEAD_BYTES_MAX = 1024
CELL_HEAD_BYTES_MAX = 32


class JournalCorrupt(Exception):
    """The journal is damaged before its end, or is not one. Move it away to start over."""


class JournalInUse(Exception):
    """Another process has this `data.dir`."""


@dataclass(slots=True)
class JournalledEvent:
    """A monitoring event that is not yet known to be published."""

    sequence: int
    time_ms: int
    counts: list[WindowCount]


@dataclass(slots=True)
class JournalState:
    """The state that the records add up to."""

    window_ms: int
    server: str
    instance: str  # sequences are counted within it
    source: Any = None
    run: str = ""  # 8 bytes in hex; events' guids start with it
    start_ms: int = 0
    position: Position = None
    is_finished: bool = False
    is_stopped: bool = False  # cleanly: nothing behind the position was sent
    next_sequence: int = 0
    totals: dict[str, int] = field(default_factory=dict)  # messages by topic, of this run
    events: list[JournalledEvent] = field(default_factory=list)
    pending: WindowCounts = field(default_factory=WindowCounts)

    def apply(self, record: dict[str, Any]) -> None:
        """Apply a record. Raises KeyError, TypeError or ValueError for an invalid one."""
        match record["k"]:
            case "run":
                self.source, self.run = record["source"], record["run"]
                self.start_ms = record["start_ms"]
                self.position, self.is_finished, self.totals = None, False, {}
                self.is_stopped = False
            case "sent":
                self.position, self.is_stopped = record["position"], False
                counts = [WindowCount(*cell) for cell in record["counts"]]
                self.pending.merge(counts)
                for cell in counts:
                    self.totals[cell.topic] = self.totals.get(cell.topic, 0) + cell.count
            case "event":
                counts = [WindowCount(*cell) for cell in record["counts"]]
                for cell in counts:
                    self.pending.remove(cell)
                self.events.append(JournalledEvent(record["sequence"], record["time"], counts))
                self.next_sequence = record["sequence"] + 1
            case "published":
                self.events = [e for e in self.events if e.sequence > record["sequence"]]
            case "finished":
                self.is_finished = True
            case "stopped":
                self.is_stopped = True
            case kind:
                raise ValueError(f"unknown record {kind!r}")

    def snapshot(self) -> dict[str, Any]:
        """The `state` record."""
        return {
            "k": "state",
            "window_ms": self.window_ms,
            "server": self.server,
            "instance": self.instance,
            "source": self.source,
            "run": self.run,
            "start_ms": self.start_ms,
            "position": self.position,
            "finished": self.is_finished,
            "stopped": self.is_stopped,
            "next_sequence": self.next_sequence,
            "totals": dict(self.totals),
            "events": [[e.sequence, e.time_ms, _cells(e.counts)] for e in self.events],
            "pending": _cells(self.pending.as_list()),
        }

    @classmethod
    def restored(cls, record: dict[str, Any]) -> Self:
        if record["k"] != "state":
            raise ValueError("the first record is not a state")
        state = cls(record["window_ms"], record["server"], record["instance"])
        state.source, state.run = record["source"], record["run"]
        state.start_ms, state.position = record["start_ms"], record["position"]
        state.is_finished, state.is_stopped = record["finished"], record.get("stopped", False)
        state.next_sequence = record["next_sequence"]
        state.totals = record["totals"]
        state.events = [
            JournalledEvent(sequence, time_ms, [WindowCount(*cell) for cell in cells])
            for sequence, time_ms, cells in record["events"]
        ]
        state.pending = WindowCounts(record["window_ms"])
        state.pending.merge(WindowCount(*cell) for cell in record["pending"])
        return state


def _cells(counts: list[WindowCount]) -> list[list[Any]]:
    return [[c.topic, c.window_start, c.count, c.bytes] for c in counts]


def _pieces(counts: list[WindowCount], payload_bytes_max: int) -> list[list[WindowCount]]:
    """The counts, cut for monitoring events."""
    pieces: list[list[WindowCount]] = []
    left = 0
    for cell in counts:
        size = CELL_HEAD_BYTES_MAX + len(cell.topic.encode())
        left -= size
        if not pieces or left < 0 or len(pieces[-1]) == CELLS_PER_EVENT_MAX:
            pieces.append([])
            left = payload_bytes_max - EVENT_HEAD_BYTES_MAX - size
        pieces[-1].append(cell)
    return pieces


class Journal:
    """The journal of one `data.dir`, which it creates and locks until `close`.

    A new journal counts for `server` in windows of `window_ms`; an existing one keeps
    its own, see `adopt`. Every method that writes returns when its record is on disk, and raises
    OSError when it could not be written: stop then.
    """

    def __init__(self, directory: Path, server: str, window_ms: int) -> None:
        make_directory(directory)
        self._path = directory / FILE
        try:
            self._lock = lock_file(directory / "journal.lock")
        except BlockingIOError:
            raise JournalInUse(f"{directory} is in use by another process") from None
        self._descriptor = -1
        try:
            self.state, self._size = self._recover(server, window_ms)
        except BaseException:
            self.close()
            raise
        self.compact_bytes = COMPACT_BYTES

    @staticmethod
    def is_in(directory: Path) -> bool:
        """Whether there is a journal of an earlier start."""
        return (directory / FILE).exists()

    # --- records -----------------------------------------------------------------------------

    def begin_run(self, source: Any, start_ms: int, run: bytes | None = None) -> None:
        """Start over with another source; `run` (8 bytes) is random by default."""
        self._append(
            {
                "k": "run",
                "source": source,
                "run": (run or secrets.token_bytes(8)).hex(),
                "start_ms": start_ms,
            }
        )

    def sent(self, position: Position, counts: list[WindowCount]) -> None:
        """Count a batch that is on the brokers' disks; the source resumes after it."""
        failpoint("counts_before_journal")
        self._append({"k": "sent", "position": position, "counts": _cells(counts)})
        failpoint("counts_after_journal")

    def make_events(self, time_ms: int, payload_bytes_max: int) -> list[JournalledEvent]:
        """Journal monitoring events for all counts not in one yet, and return them.

        They are cut here, as each is sent as it was journalled: none has a payload above
        `payload_bytes_max`, unless a single cell has.
        """
        pieces = _pieces(self.state.pending.as_list(), payload_bytes_max)
        for counts in pieces:
            self._append(
                {
                    "k": "event",
                    "sequence": self.state.next_sequence,
                    "time": time_ms,
                    "counts": _cells(counts),
                }
            )
        failpoint("counts_before_publish")
        return self.state.events[len(self.state.events) - len(pieces) :]

    def published(self, sequence: int) -> None:
        """Record that every event up to `sequence` is durable in topic audit."""
        failpoint("counts_after_publish")
        self._append({"k": "published", "sequence": sequence})

    def finished(self) -> None:
        self._append({"k": "finished"})

    def stopped(self) -> None:
        """Record that all that was sent is confirmed and counted, and this run sends no more."""
        self._append({"k": "stopped"})

    def adopt(self, server: str, window_ms: int) -> None:
        """Count for this server and width from now on, as a new instance, from a source's start.

        Only while nothing is pending or unpublished: that would belong to the old name.
        """
        assert not self.state.pending
        assert not self.state.events
        self.state = _new_state(server, window_ms)
        self._rewrite(self.state)

    # --- the file ----------------------------------------------------------------------------

    def close(self) -> None:
        """Close the files and release the lock. Idempotent."""
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, record: dict[str, Any]) -> None:
        line = _line(record)
        _write_all(self._descriptor, line)
        os.fdatasync(self._descriptor)
        self.state.apply(record)
        self._size += len(line)
        if self._size > self.compact_bytes:
            self._rewrite(self.state)

    def _recover(self, server: str, window_ms: int) -> tuple[JournalState, int]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            content = b""
        if not content:  # only created so far: the first record is renamed into place whole
            state = _new_state(server, window_ms)
            return state, self._rewrite(state)
        found: JournalState | None = None
        end = 0
        while end < len(content):
            newline = content.find(b"\n", end)
            line = content[end : newline if newline >= 0 else len(content)]
            try:
                record = _record(line)
                if newline < 0:
                    raise ValueError("no line end")
                if found is None:
                    found = JournalState.restored(record)
                else:
                    found.apply(record)
            except (ValueError, KeyError, TypeError) as error:
                if found is None or 0 <= newline < len(content) - 1:
                    raise JournalCorrupt(
                        f"{self._path} is damaged at byte {end}: {error}"
                    ) from None
                break
            end = newline + 1
        assert found is not None  # an unreadable first record raised
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        if end < len(content):
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)
        return found, end

    def _rewrite(self, state: JournalState) -> int:
        """Put one `state` record in the file's place; a crash leaves the old file or the new."""
        line = _line(state.snapshot())
        new = self._path.with_name("journal.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        try:
            _write_all(descriptor, line)
            os.fsync(descriptor)
            failpoint("counts_before_journal_rename")
            new.rename(self._path)
        except BaseException:
            os.close(descriptor)
            raise
        sync_directory(self._path.parent)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._size = len(line)
        return self._size


def _new_state(server: str, window_ms: int) -> JournalState:
    return JournalState(window_ms, server, secrets.token_hex(8), pending=WindowCounts(window_ms))


def _line(record: dict[str, Any]) -> bytes:
    body = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _record(line: bytes) -> dict[str, Any]:
    crc, space, body = line.partition(b" ")
    if not space or len(crc) != 8 or int(crc, 16) != zlib.crc32(body):
        raise ValueError("wrong CRC")
    record = json.loads(body)
    if not isinstance(record, dict):
        raise ValueError("not a record")
    return record


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
