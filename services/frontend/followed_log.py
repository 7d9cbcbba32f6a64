"""A log that is followed: its lines as events, through rotation and truncation.

The files are the tailer's (producer.tail): a renamed one is read to its end beside its successor,
one that was truncated or written anew is begun again. A file's content has a random id of 8 bytes;
a line's guid is this id and the line's number in it, so that a line that is sent again after a
crash has the same guid, and no other line has it. Therefore the id is in the journal before the
first of its lines is sent: such a batch has no events, and `is_to_be_stored`. So a file that was
seen once is found again, whatever its name is at the next start.
"""

import itertools
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kafka2011.events.codec import prefix_of
from kafka2011.producer.counting.journal import Position
from kafka2011.producer.tail.files import Files, literal_pattern
from kafka2011.producer.tail.messages import (
    ANCHOR_BYTES,
    FileId,
    as_json,
    digest_of,
    from_json,
)
from kafka2011.producer.tail.messages import Position as FilePosition
from kafka2011.producer.tail.tailer import Collected, FileSource, Tailer
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.logs import get_logger
from kafka2011.services.frontend.access_log import LineEncoder
from kafka2011.services.frontend.delivery import Event
from kafka2011.services.frontend.lines import LINE_BYTES_MAX, Line
from kafka2011.services.frontend.log_format import FORMAT_DEFAULT, parser_of
from kafka2011.services.frontend.sources import Batch, Pace

POLL_MS = 100
READ_BYTES = 64 * 1024  # of one file in a batch
GONE_WAIT_S = 5.0
FINISHED_MAX = 3  # positions kept of files that were rotated away and read to their end

log = get_logger(__name__)


class FollowedLogSource:
    """The lines of a log, without end. Position: those of its files, as the tailer stores them.

    A line above LINE_BYTES_MAX becomes several events. With a `rate` (lines a second, 0 without
    limit) a batch waits until the lines before it are due. While there is no file, it waits.
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
        files: FileSource | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._server, self._service, self._prefix = server, service, prefix
        self._parser = parser_of(log_format)
        resume = [from_json(one) for one in position["files"]] if position else []
        first = [run_id.hex()] if position is None else []
        ids = itertools.chain(first, iter(lambda: secrets.token_hex(8), ""))
        self._tailer = Tailer(
            files or Files([literal_pattern(str(path))]),
            line_bytes_max=LINE_BYTES_MAX,
            gone_wait_s=GONE_WAIT_S,
            now_s=now_s,
            resume=resume,
            finished_max=FINISHED_MAX,
            read_bytes=READ_BYTES,
            new_content=lambda: next(ids),
        )
        self._resume = self._positions = resume
        self._stored = {one.content for one in resume}  # ids that are in the journal
        self._held: Collected | None = None  # until their ids are in the journal
        self._encoders: dict[str, LineEncoder] = {}
        self._clock = clock
        self._pace = Pace(rate, clock)
        self._is_missing = False

    def next_batch(self) -> Batch:
        if self._pace.due(1) < 1:
            return Batch([], self._position(), self._pace.wait_ms())
        found, self._held = self._held, None
        if found is None:
            found = self._tailer.collect()
            self._report_missing()
            new = {one.content for one in self._tailer.positions()} - self._stored
            if new:
                self._held = found
                self._stored |= new
                self._positions = self._tailer.begun(self._positions)
                return Batch([], self._position(), is_to_be_stored=True)
        self._positions = self._tailer.positions()
        self._forget()
        events = self._events(found)
        self._pace.took(len(events))
        is_idle = not events and not found.has_more
        return Batch(events, self._position(), POLL_MS if is_idle else 0)

    def with_new_files(self, position: Position) -> Position:
        """`position`, and where files begin that came since then: it opens these, and reads none.

        For a wait that may be long, in which a file can come and be rotated away.
        """
        self._tailer.look()
        is_own = isinstance(position, dict)
        stored = [from_json(one) for one in position["files"]] if is_own else self._resume
        begun = self._tailer.begun(stored)
        return position if begun == stored else as_position(begun)

    def close(self) -> None:
        self._tailer.close()

    def _position(self) -> Position:
        return as_position(self._positions)

    def _forget(self) -> None:
        present = {one.content for one in self._positions}
        self._stored &= present
        for content in self._encoders.keys() - present:
            del self._encoders[content]

    def _events(self, found: Collected) -> list[Event]:
        events: list[Event] = []
        for (_, lines), (content, before) in zip(found.parts, found.contents, strict=True):
            encode = self._encoder(content).encode
            for number, line in enumerate(lines, before + 1):
                events.append(encode(Line(line.removesuffix(b"\r"), number, 0)))
        return events

    def _encoder(self, content: str) -> LineEncoder:
        found = self._encoders.get(content)
        if found is None:
            found = self._encoders[content] = LineEncoder(
                bytes.fromhex(content),
                self._server,
                self._service,
                self._clock,
                self._prefix,
                parser=self._parser,
            )
        return found

    def _report_missing(self) -> None:
        is_missing = not self._tailer.file_count
        if is_missing and not self._is_missing:
            log.warning("input_missing", path=str(self._path))
        self._is_missing = is_missing


def as_position(files: Iterable[FilePosition]) -> Position:
    """What the journal keeps of these."""
    return {"files": [as_json(one) for one in sorted(files)]}


def is_same_log(source: Any, descriptor: dict[str, Any]) -> bool:
    """Whether a run's source is the log at this path, whichever file that was."""
    return isinstance(source, dict) and all(
        source.get(name) == descriptor.get(name) is not None for name in ("kind", "path")
    )


def followed_position(position: Position, source: dict[str, Any], run: str) -> Position:
    """The position at which following goes on, also from that of a run that did not follow."""
    if not isinstance(position, list):
        return position
    offset, number, *anchor = position
    path, file = source["path"], FileId(source["device"], source["inode"])
    size = min(ANCHOR_BYTES, offset)
    digest = anchor[0] if anchor else _digest_before(Files([]), path, file, offset, size)
    return as_position([FilePosition(file, path, offset, size, digest, run, number)])


def _digest_before(files: Files, path: str, file: FileId, offset: int, size: int) -> str:
    """The anchor for a position that an older version stored without one: what is there now."""
    anchor = b""
    try:
        now_at = files.renamed(file, path)
        if now_at is not None:
            opened = files.open(now_at)
            try:
                anchor = opened.read(offset - size, size)
            finally:
                opened.close()
    except OSError as error:
        log.warning("read_failed", path=path, reason=error.strerror or str(error))
    return digest_of(anchor)


def plain_position(position: Position, descriptor: dict[str, Any], run: str) -> Position:
    """The position [offset, line number, anchor] at which a file that was followed is read on.

    If the file holds something else now, an offset behind any file's end: it is read anew.
    """
    if not isinstance(position, dict):
        return position
    for one in map(from_json, position["files"]):
        if one.file == (descriptor["device"], descriptor["inode"]) and one.content == run:
            return [one.offset, one.lines, one.anchor_sha256]
    return [2**63, 0]
