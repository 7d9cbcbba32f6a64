"""The tailer's arithmetic: bytes of a followed file to messages, and its position. Pure.

A position is an offset and the *anchor*: the bytes in front of it. Reading on at the offset reads
the anchor, too; if it has changed, the file was truncated and rewritten (or the inode is another
file's), and reading starts at 0 again. The anchor identifies a file better than its first bytes
would, since many logs begin alike.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

ANCHOR_BYTES = 256
STATE_VERSION = 1


class FileId(NamedTuple):
    """What stays the same when a file is renamed."""

    device: int
    inode: int


class Position(NamedTuple):
    """Where to go on in a file: everything before `offset` is durable at the broker."""

    file: FileId
    path: str  # where it was seen last
    offset: int
    anchor_bytes: int
    anchor_sha256: str
    content: str = ""  # the id of what the file holds, a new one when it is written anew
    lines: int = 0  # messages of this content before `offset`
    key: str = ""  # the path at which it was found first, if that is another


class BadState(ValueError):
    """The state file cannot be understood. The text is for the user."""


class Cursor:
    """One followed file: how far it was read, and the last line while it is not complete.

    Lines end with a line feed, which is not part of the message; the bytes may be anything. A line
    above `line_bytes_max` becomes several messages.
    """

    def __init__(self, line_bytes_max: int, content: str = "") -> None:
        self._line_bytes_max = line_bytes_max
        self.content = content
        self.key = ""  # the path at which the file was found first
        self.lines = 0  # messages of this content so far
        self.offset = 0  # behind the last byte that became part of a message
        self._before = b""  # the bytes in front of `offset`, at most ANCHOR_BYTES
        self._partial = b""  # read behind `offset`, not yet a whole line
        self._wanted: tuple[int, str] | None = None  # of a stored position, until it is checked
        self.cut_lines = 0

    def resume(self, position: Position) -> None:
        """Go on at a stored position; the first window shows whether it is this file's."""
        self.offset = position.offset
        self.content, self.lines = position.content, position.lines
        self.key = position.key or position.path
        self._wanted = (position.anchor_bytes, position.anchor_sha256)

    def begin_at(self, offset: int, before: bytes) -> None:
        """Go on behind `before`, the bytes in front of `offset`, at most ANCHOR_BYTES."""
        self.offset = offset
        self._before = before

    @property
    def read_offset(self) -> int:
        """The offset behind the last byte that was read."""
        return self.offset + len(self._partial)

    def window(self, size: int) -> tuple[int, int]:
        """(offset, size) of what to read next: the anchor, and `size` bytes behind it."""
        anchor = self._wanted[0] if self._wanted else len(self._anchor())
        return self.read_offset - anchor, anchor + size

    def _anchor(self) -> bytes:
        return (self._before + self._partial)[-ANCHOR_BYTES:]

    def accept(self, window: bytes) -> list[bytes] | None:
        """The messages in what was read at `window()`; None when the file was written anew: call
        `restart`, and read again."""
        if self._wanted is not None:
            size, digest = self._wanted
            anchor = window[:size]
            if len(anchor) < size or digest_of(anchor) != digest:
                return None
            self._wanted = None
            self._before = anchor
        else:
            anchor = self._anchor()
            if not window.startswith(anchor):
                return None
        fresh = window[len(anchor) :]
        if not fresh:
            return []
        data = self._partial + fresh
        end = data.rfind(b"\n") + 1
        messages: list[bytes] = []
        if end:
            for line in data[: end - 1].split(b"\n"):
                self._cut(messages, line)
            self._advance(data[:end])
        self._partial = data[end:]
        while len(self._partial) > self._line_bytes_max:
            piece = self._partial[: self._line_bytes_max]
            self._partial = self._partial[self._line_bytes_max :]
            self._advance(piece)
            messages.append(piece)
            self.cut_lines += 1
        self.lines += len(messages)
        return messages

    def _cut(self, messages: list[bytes], line: bytes) -> None:
        limit = self._line_bytes_max
        if len(line) <= limit:
            messages.append(line)
        else:
            self.cut_lines += 1
            messages += [line[at : at + limit] for at in range(0, len(line), limit)]

    def _advance(self, taken: bytes) -> None:
        self.offset += len(taken)
        self._before = (self._before + taken)[-ANCHOR_BYTES:]

    def finish(self) -> list[bytes]:
        """The message behind the last line feed, if any: no more will come."""
        messages: list[bytes] = []
        if self._partial:
            partial, self._partial = self._partial, b""
            self._cut(messages, partial)
            self._advance(partial)
            self.lines += len(messages)
        return messages

    def restart(self, content: str = "") -> list[bytes]:
        """Begin at 0, as the file was written anew; return what was read of the last line."""
        messages = self.finish()
        self.content, self.lines = content, 0
        self.offset = 0
        self._before = b""
        self._wanted = None
        return messages

    def position(self, file: FileId, path: str) -> Position:
        if self._wanted is not None:  # resumed, but not read yet
            anchor = self._wanted
        else:
            anchor = len(self._before), digest_of(self._before)
        key = "" if self.key == path else self.key
        return Position(file, path, self.offset, *anchor, self.content, self.lines, key)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def as_json(position: Position) -> dict[str, Any]:
    found = {**position._asdict(), "device": position.file.device, "inode": position.file.inode}
    del found["file"]
    if not position.key:
        del found["key"]
    return found


def from_json(one: Any) -> Position:
    """The position in a JSON object. Raises BadState, KeyError, TypeError or ValueError."""
    found = Position(
        FileId(int(one["device"]), int(one["inode"])),
        str(one["path"]),
        int(one["offset"]),
        int(one["anchor_bytes"]),
        str(one["anchor_sha256"]),
        str(one.get("content", "")),
        int(one.get("lines", 0)),
        str(one.get("key", "")),
    )
    if not 0 <= found.anchor_bytes <= min(ANCHOR_BYTES, found.offset):
        raise BadState("an anchor does not fit its offset")
    bytes.fromhex(found.content)
    if found.lines < 0 or "\0" in found.path:
        raise BadState("no such number of lines, or no such path")
    return found


def encode_positions(positions: Iterable[Position]) -> bytes:
    """The state file's content: JSON."""
    files = [as_json(one) for one in sorted(positions)]
    return json.dumps({"version": STATE_VERSION, "files": files}, indent=1).encode() + b"\n"


def decode_positions(data: bytes) -> list[Position]:
    """Read a state file. Raises BadState."""
    try:
        state: Any = json.loads(data)
        if state["version"] != STATE_VERSION:
            raise BadState(f"version {state['version']} is not known here")
        return [from_json(one) for one in state["files"]]
    except BadState:
        raise
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BadState(f"not a tailer's state: {error!r}") from None
