"""The tailer: follows files through rotation and truncation, and collects the lines to send.

Round after round: `collect` looks which files there are, reads a bounded number of bytes and
returns the whole lines in them; the caller stores where new files begin (`begun`), sends the lines,
flushes (`Producer.flush`), and only then stores `positions()`. Whatever happens, lines whose
positions were not stored are read again: each line is sent at least once, those of a file in order.
While the brokers are away nothing is read, but `look` still opens what is new: it may be rotated
away meanwhile.

- a renamed file stays open under its new name, and is read to its end beside its successor
- one that no pattern names any more, or deleted: read until nothing has come for `gone_wait_s`,
  because a writer may go on for a while; then its last line goes out, ended or not
- one truncated, or written anew in place: begun at 0 again
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from kafka2011.producer.tail.messages import ANCHOR_BYTES, Cursor, FileId, Position
from kafka2011.runtime.logs import get_logger

READ_BYTES = 256 * 1024  # of one file and round, so that one busy file does not starve the others
ROUND_BYTES = 4 * 1024 * 1024
FINISHED_MAX = 1000  # positions kept of files that are gone, should they come back

log = get_logger(__name__)


class Opened(Protocol):
    id: FileId

    def read(self, offset: int, size: int) -> bytes: ...
    def size(self) -> int: ...
    def is_deleted(self) -> bool: ...
    def close(self) -> None: ...


class FileSource(Protocol):
    """The access to files: `files.Files`, or a test's."""

    def scan(self) -> dict[FileId, str]: ...
    def open(self, path: str) -> Opened: ...
    def renamed(self, file: FileId, path: str) -> str | None: ...


@dataclass(slots=True)
class TailStats:
    """Counters since the start."""

    lines: int = 0  # messages that are durable
    bytes: int = 0  # of their payloads
    cut_lines: int = 0  # above the limit, sent in pieces
    resumed: int = 0  # files under the patterns that go on behind what an earlier run sent of them
    truncations: int = 0  # files that began anew in place
    finished: int = 0  # files that are gone and were read to their end
    unreadable: int = 0  # attempts to open or read that failed


@dataclass(slots=True)
class _Followed:
    """A file that is being read."""

    file: Opened
    path: str
    cursor: Cursor
    begin: Position  # where it was opened, or where what it holds now begins
    is_gone: bool = False  # no pattern names it any more
    quiet_since_s: float = 0.0  # since when it has brought nothing
    cut_lines_reported: int = 0


@dataclass(slots=True)
class Collected:
    """What a round has found: `parts` are (path, messages in order), file by file."""

    parts: list[tuple[str, list[bytes]]] = field(default_factory=list)
    # For each part: the content's id, and how many messages of that content came before.
    contents: list[tuple[str, int]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)  # for each part: the path found first
    size: int = 0
    has_more: bool = False  # some file was not read to its end

    def add(self, one: _Followed, messages: list[bytes], content: str, before: int) -> None:
        if messages:
            self.parts.append((one.path, messages))
            self.contents.append((content, before))
            self.keys.append(one.cursor.key)
            self.size += sum(map(len, messages))


class Tailer:
    """The files that are followed.

    `resume`: the positions that an earlier run has stored; None: there was no run. `from_end`: the
    files of the first run's first look begin at their end. A file that an earlier run did not see
    came later and begins at its start: rotation goes on between two runs. At most `files_max` are
    open at once; further ones wait until others are finished. `now_s` is a monotonic clock, in
    seconds. `new_content` makes the id of what a file holds, when a file without a position is
    opened and when a file begins anew.
    """

    def __init__(
        self,
        files: FileSource,
        *,
        line_bytes_max: int,
        gone_wait_s: float,
        now_s: Callable[[], float],
        resume: Iterable[Position] | None = None,
        from_end: bool = False,
        files_max: int = 500,
        finished_max: int = FINISHED_MAX,
        read_bytes: int = 0,
        new_content: Callable[[], str] = lambda: "",
    ) -> None:
        self._files = files
        self._line_bytes_max = line_bytes_max
        self._gone_wait_s = gone_wait_s
        self._now_s = now_s
        self._stored = {position.file: position for position in resume or ()}
        self._to_find = set(self._stored)  # those that were not opened since the start
        self._to_pass_over: set[FileId] = set()  # to begin at their end when they can be opened
        self._from_end = from_end and resume is None
        self._files_max = files_max
        self._finished_max = finished_max
        self._read_bytes = read_bytes or READ_BYTES
        self._new_content = new_content
        self._followed: dict[FileId, _Followed] = {}
        self._failed_paths: set[str] = set()  # paths whose error was logged
        self._read_out: set[FileId] = set()  # closed to make room, and not to be opened again
        self.unread: set[str] = set()  # paths that could not be opened or read in the last round
        self.has_waiting = False  # some file was not opened then, since `files_max` are
        self._turn = 0
        self.stats = TailStats()

    def positions(self) -> list[Position]:
        """Where to go on when everything collected so far is durable."""
        kept = [one.cursor.position(key, one.path) for key, one in self._followed.items()]
        return [*kept, *self._stored.values()]

    def begun(self, stored: Iterable[Position]) -> list[Position]:
        """`stored`, and behind it where to begin in files, and contents of files, new since then.

        To be stored before their lines are sent: so a file that was seen once is found again, and
        its lines have the same content id when they are sent again.
        """
        known = {one.file: one for one in stored}
        for key in self._to_find:
            if key not in known and key in self._stored:  # passed over, and not open yet
                known[key] = self._stored[key]
        for key, one in self._followed.items():
            if key not in known or known[key].content != one.begin.content:
                found_at = "" if one.cursor.key == one.path else one.cursor.key
                known[key] = one.begin._replace(path=one.path, key=found_at)
        return list(known.values())

    @property
    def file_count(self) -> int:
        return len(self._followed)

    def is_followed(self, file: FileId) -> bool:
        return file in self._followed

    def behind_bytes(self) -> int:
        """How many bytes of the files are not collected yet."""
        total = 0
        for one in self._followed.values():
            try:
                total += max(0, one.file.size() - one.cursor.offset)
            except OSError:
                continue
        return total

    def close(self) -> None:
        for one in self._followed.values():
            one.file.close()
        self._followed.clear()

    # --- a round ---------------------------------------------------------------------------------

    def collect(self) -> Collected:
        """Look at all files and read on. Never raises for a file that cannot be read."""
        self.look()
        found = Collected()
        every = list(self._followed)
        self._turn = (self._turn + 1) % max(1, len(every))
        for key in every[self._turn :] + every[: self._turn]:
            if found.size >= ROUND_BYTES:
                found.has_more = True
                break
            self._read_on(key, self._followed[key], found)
        return found

    def finish_all(self) -> Collected:
        """The unended last lines of all files, for a run that stops at the end of the files."""
        found = Collected()
        for one in self._followed.values():
            before = one.cursor.lines
            found.add(one, one.cursor.finish(), one.cursor.content, before)
        return found

    def make_room(self) -> None:
        """Close all files for good, when they are read to their end: for those that wait."""
        for key, one in self._followed.items():
            self._stored[key] = one.cursor.position(key, one.path)
        self._read_out |= self._followed.keys()
        self._to_find -= self._followed.keys()
        self.close()

    def look(self) -> None:
        """Note which files are there under which names, and open new ones. Nothing is read: what
        `positions` returns then is where files begin."""
        self.unread, self.has_waiting = set(), False
        seen = self._files.scan()
        for key, one in self._followed.items():
            if key in seen:
                one.path, one.is_gone = seen[key], False
            elif not one.is_gone:
                one.is_gone, one.quiet_since_s = True, self._now_s()
        if self._from_end:
            self._to_pass_over = set(seen)
        self._from_end = False
        self._pass_over(seen)
        for key, path in seen.items():
            if key not in self._followed and key not in self._read_out:
                position = self._stored.get(key)
                if self._open(path) and position is not None:
                    self.stats.resumed += position.offset > 0
        self._find_renamed(seen)

    def _find_renamed(self, seen: dict[FileId, str]) -> None:
        """Open files renamed since the last run to names outside the patterns, to read their ends.

        A position is dropped only when its file is not there; one that cannot be opened now is
        looked for again.
        """
        gone: list[Position] = []
        for key in list(self._to_find):
            position = self._stored.get(key)
            if position is None:
                self._to_find.discard(key)
            elif key not in seen:
                try:
                    path_now = self._files.renamed(key, position.path)
                except OSError as error:
                    self._report_error(position.path, error)
                    continue
                if path_now is not None:
                    self._open(path_now)
                else:
                    self._to_find.discard(key)
                    gone.append(self._stored.pop(key))
        if gone:  # mostly finished and then deleted, as by any rotation
            log.warning("files_are_gone", count=len(gone), path=min(one.path for one in gone))

    def _open(self, path: str) -> bool:
        if len(self._followed) >= self._files_max:
            if path not in self._failed_paths:
                self._failed_paths.add(path)
                log.info("waits_for_room", path=path, followed=self._files_max)
            self.has_waiting = True
            return False
        try:
            file = self._files.open(path)
        except OSError as error:
            self._report_error(path, error)
            return False
        if file.id in self._followed:  # renamed between the look and the opening
            file.close()
            return True
        if file.id in self._to_pass_over:
            file.close()
            return False
        position = self._stored.pop(file.id, None)
        cursor = Cursor(self._line_bytes_max)
        cursor.key = path
        if position is not None:
            cursor.resume(position)
        if not cursor.content:  # also a position's that was stored by a run without contents
            cursor.content = self._new_content()
        begin = cursor.position(file.id, path)
        self._followed[file.id] = _Followed(file, path, cursor, begin, quiet_since_s=self._now_s())
        self._failed_paths.discard(path)
        log.info("following", path=path, offset=cursor.offset)
        return True

    def _pass_over(self, seen: dict[FileId, str]) -> None:
        """Give a position at their end to files that are to begin there, also to those that wait to
        be followed; one that cannot be opened or read now is tried again."""
        for path in [seen[key] for key in self._to_pass_over if key in seen]:
            try:
                file = self._files.open(path)
            except OSError as error:
                self._report_error(path, error)
                continue
            try:
                if file.id in self._to_pass_over:  # else renamed since the look
                    cursor = Cursor(self._line_bytes_max, self._new_content())
                    cursor.key = path
                    self._to_the_end(cursor, file)
                    self._stored[file.id] = cursor.position(file.id, path)
                    self._to_find.add(file.id)
                    self._to_pass_over.discard(file.id)
            except OSError as error:
                self._report_error(path, error)
            finally:
                file.close()

    def _to_the_end(self, cursor: Cursor, file: Opened) -> None:
        """Pass over what is there, except an unended last line that is not too long.

        Reads backwards, and about one line at most: files may be large.
        """
        end = start = file.size()
        found = -1
        while found < 0 and start and end - start < self._line_bytes_max:
            behind, start = start, max(0, start - READ_BYTES)
            found = file.read(start, behind - start).rfind(b"\n")
        if found >= 0:
            start += found + 1
        elif start:  # within a long line: only its rest will be sent
            start = end
        anchor_at = max(0, start - ANCHOR_BYTES)
        cursor.begin_at(start, file.read(anchor_at, start - anchor_at))

    def _read_on(self, key: FileId, one: _Followed, found: Collected) -> None:
        offset, size = one.cursor.window(self._read_bytes)
        try:
            window = one.file.read(offset, size)
        except OSError as error:
            self._report_error(one.path, error)
            return
        before = one.cursor.read_offset
        content, lines = one.cursor.content, one.cursor.lines
        messages = one.cursor.accept(window)
        if messages is None:
            self.stats.truncations += 1
            log.info("begun_anew", path=one.path, was_at=one.cursor.read_offset)
            found.add(one, one.cursor.restart(self._new_content()), content, lines)
            one.cursor.key = one.path
            one.begin = one.cursor.position(key, one.path)
            found.has_more = True  # read in the next round
            one.quiet_since_s = self._now_s()
            return
        found.add(one, messages, content, lines)
        self.stats.cut_lines += one.cursor.cut_lines - one.cut_lines_reported
        one.cut_lines_reported = one.cursor.cut_lines
        if one.cursor.read_offset != before:
            one.quiet_since_s = self._now_s()
        found.has_more |= len(window) == size
        if (
            one.is_gone
            and len(window) < size
            and self._now_s() - one.quiet_since_s >= self._gone_wait_s
        ):
            lines = one.cursor.lines
            found.add(one, one.cursor.finish(), content, lines)
            log.info("finished", path=one.path, offset=one.cursor.offset)
            is_deleted = one.file.is_deleted()
            one.file.close()
            del self._followed[key]
            if is_deleted:  # its number is another file's soon, which may begin alike
                self._stored.pop(key, None)
            else:
                self._stored[key] = one.cursor.position(key, one.path)
            finished = [key for key in self._stored if key not in self._to_find | self._read_out]
            for oldest in finished[: max(0, len(finished) - self._finished_max)]:
                del self._stored[oldest]
            self.stats.finished += 1

    def _report_error(self, path: str, error: OSError) -> None:
        self.stats.unreadable += 1
        self.unread.add(path)
        if path not in self._failed_paths:
            self._failed_paths.add(path)
            log.warning("read_failed", path=path, reason=error.strerror or str(error))
