"""One line of a web server's access log to one event: common and combined format, and JSON. Pure.

    host ident user [17/May/2015:10:05:03 +0000] "GET /path HTTP/1.1" 200 203023 "referer" "agent"

A line is readable when host, time and status can be read (docs/events.md has the cases). Also
accepted: a virtual host or more addresses around the client's; a time in ISO 8601; a last field
without its closing quote; a request that is not three words (its text is the path then); fields
missing after the status; more fields after the agent; quotes inside quotes. A log in another format
is read by its own notation (log_format). Bytes that are not UTF-8 become \\xNN. Everything else is
unreadable and goes to the side topic with its first 64 KiB, length, SHA-256 and line number.

Fields are kept as they are in the line, including escapes, so that they equal what awk shows.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Protocol

from kafka2011.events.codec import encoder_behind, prefix_of
from kafka2011.events.primitives import NULL, PRESENT, long, optional_text, text
from kafka2011.events.topics import ACCESS_LOG, unreadable_topic
from kafka2011.services.frontend.access_line import (
    CLF_TIME,
    FIELD_BYTES_MAX,
    AccessLine,
    Times,
    cut,
    name,
    request_words,
    size_of,
    valid_utf8,
)
from kafka2011.services.frontend.json_lines import JsonParser
from kafka2011.services.frontend.lines import HEAD_BYTES, Line, LongLine

UNREADABLE = unreadable_topic(ACCESS_LOG)
_CACHE_MAX = 10_000

_QUOTED = rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_TIME = rb"\[(" + CLF_TIME + rb")\]"
# Matches nearly every line. Its quantifiers are possessive, so that it cannot backtrack.
_REGULAR = re.compile(
    rb"(\S++) (\S++) (\S++) " + _TIME + rb" " + _QUOTED + rb" (\d{3}) (\d{1,18}|-)"
    rb"(?: " + _QUOTED + rb" " + _QUOTED + rb")?$",
    re.DOTALL,
)
# The virtual host that answered, in front of the client: with its port, or before an address.
_ADDRESS = rb"(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]*)"
_VIRTUAL_HOST = re.compile(
    rb"(?:[^ \t:]+:\d{1,5} (?=[^ -]\S* \S+ [^\[]|- - - \[)"
    rb"|[^ \t,]+ (?=" + _ADDRESS + rb" \S+ [^\[]))"
)
_ANY_TIME = re.compile(rb"\[(" + CLF_TIME + rb"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\]\s]{0,20})\]")
_STRICT_REQUEST = re.compile(_QUOTED + rb"[ \t]+(\d{3})(?=[ \t]|$)", re.DOTALL)
_LOOSE_REQUEST = re.compile(rb'"(.*?)"[ \t]+(\d{3})(?=[ \t]|$)', re.DOTALL)
_STRICT_REFERER = re.compile(_QUOTED + rb"(?:[ \t]+|$)", re.DOTALL)
_LOOSE_REFERER = re.compile(rb'"(.*?)"[ \t]+(?=")', re.DOTALL)
_STRICT_AGENT = re.compile(_QUOTED + rb"(?=[ \t]|$)", re.DOTALL)
_WORD = re.compile(rb"[^ \t]+")


class Parser(Protocol):
    """Reads lines of some format. Never raises for a line's content."""

    def parse(self, line: bytes) -> AccessLine | None:
        """The line's fields, or None when it is unreadable."""


class LineParser:
    """Parses lines of any of these formats; one per thread. Never raises for a line's content."""

    def __init__(self) -> None:
        self._ms = Times().ms
        self._json = JsonParser()

    def parse(self, line: bytes) -> AccessLine | None:
        """The line's fields, or None when it is unreadable."""
        whole, line = line, valid_utf8(line)
        match = _REGULAR.match(line)
        if match is None or len(line) > FIELD_BYTES_MAX:
            if whole.startswith(b"{"):
                return self._json.parse(whole)
            return self._parse_odd(line)
        host, ident, user, time, request, status, size, referer, agent = match.groups()
        event_time_ms = self._ms(time)
        if event_time_ms is None or host == b"-":
            return None
        words = request.split(b" ")
        if len(words) == 3 and words[0] and words[1] and words[2] and b"\t" not in request:
            method, path, protocol = words
        else:
            method, path, protocol = request_words(request)
        return AccessLine(
            host,
            None if ident == b"-" else ident,
            None if user == b"-" else user,
            time,
            method,
            path,
            protocol,
            int(status),
            None if size == b"-" else int(size),
            None if referer == b"-" else referer,
            None if agent == b"-" else agent,
            event_time_ms,
        )

    def _parse_odd(self, line: bytes) -> AccessLine | None:
        virtual_host = _VIRTUAL_HOST.match(line)
        if virtual_host is not None:
            line = line[virtual_host.end() :]
        time_match = _ANY_TIME.search(line)
        if time_match is None:
            return None
        before = line[: time_match.start()].replace(b"\t", b" ").split(b" ")
        names = [word for word in before if word]
        time = time_match[1]
        event_time_ms = self._ms(time)
        if not names or event_time_ms is None:
            return None
        host = names[0].partition(b",")[0] or names[0]
        if host == b"-":
            return None
        rest = line[time_match.end() :].lstrip(b" \t")
        request_match = _STRICT_REQUEST.match(rest) or _LOOSE_REQUEST.match(rest)
        if request_match is None:
            return None
        method, path, protocol = request_words(request_match[1])
        rest = rest[request_match.end() :].lstrip(b" \t")
        size: int | None = None
        word = _WORD.match(rest)
        if word is not None and not rest.startswith(b'"'):
            size = size_of(word[0])
            rest = rest[word.end() :].lstrip(b" \t")
        referer, agent = _referer_and_agent(rest)
        last = 0  # index of the last address: the client's, then those of forwarding proxies
        while names[last].endswith(b",") and last + 1 < len(names):
            last += 1
        others = names[last + 1 :]
        return AccessLine(
            cut(host),
            name(others[0]) if others else None,
            name(b" ".join(others[1:])) if len(others) > 1 else None,
            time,
            None if method is None else cut(method),
            cut(path),
            None if protocol is None else cut(protocol),
            int(request_match[2]),
            size,
            name(referer),
            name(agent),
            event_time_ms,
        )


def _referer_and_agent(rest: bytes) -> tuple[bytes | None, bytes | None]:
    """The quoted fields behind the size; either may lack its closing quote if it is the last."""
    if not rest.startswith(b'"'):
        return None, None
    match = _STRICT_REFERER.match(rest)
    if match is None or (match.end() < len(rest) and rest[match.end()] != ord('"')):
        # Quotes inside the referer, or something other than an agent after it.
        match = _LOOSE_REFERER.match(rest) or match
    if match is None:
        return _unquoted(rest), None
    rest = rest[match.end() :]
    if not rest.startswith(b'"'):
        return match[1], None
    agent = _STRICT_AGENT.match(rest)
    return match[1], agent[1] if agent is not None else _unquoted(rest)


def _unquoted(field: bytes) -> bytes:
    """A last field without its opening quote, and without its closing one if it has that."""
    return field[1:].removesuffix(b'"')


class LineEncoder:
    """Makes lines into events of one run: `guid` is the run's id and the line's number.

    A line that is sent again after a crash has the same guid, so reports count it once. `run_id`
    is 8 bytes; `clock` says when the event is made, in ms since the epoch. `prefix` gives the first
    bytes of a topic's events (events.topic_codec). `parser` is that of the log's format.
    """

    def __init__(
        self,
        run_id: bytes,
        server: str,
        service: str,
        clock: Callable[[], int],
        prefix: Callable[[str], bytes] = prefix_of,
        *,
        parser: Parser | None = None,
    ) -> None:
        assert len(run_id) == 8
        self._run_id = run_id
        self._server = server
        self._service = service
        self._clock = clock
        self._parser = parser or LineParser()
        self._start = prefix(ACCESS_LOG) + run_id
        self._names = text(server.encode()) + text(service.encode())
        self._encode_unreadable = encoder_behind(prefix(UNREADABLE), UNREADABLE)
        self._now = (-1, b"")
        self._times: dict[int, bytes] = {}

    def encode(self, line: Line | LongLine) -> tuple[str, int, bytes]:
        """Topic, header.time and payload of the event that the line makes."""
        now_ms = self._clock()
        parsed = self._parser.parse(line.data) if isinstance(line, Line) else None
        if parsed is None:
            return UNREADABLE, now_ms, self._unreadable(line, now_ms)
        if now_ms != self._now[0]:
            self._now = (now_ms, long(now_ms) + self._names)
        (
            host,
            ident,
            user,
            time,
            method,
            path,
            protocol,
            status,
            size,
            referer,
            agent,
            event_time_ms,
        ) = parsed
        event_time = self._times.get(event_time_ms)
        if event_time is None:
            if len(self._times) >= _CACHE_MAX:
                self._times.clear()
            event_time = self._times[event_time_ms] = long(event_time_ms)
        payload = b"".join(
            (
                self._start,
                line.number.to_bytes(8, "big"),
                self._now[1],
                event_time,
                text(host),
                NULL if ident is None else optional_text(ident),
                NULL if user is None else optional_text(user),
                text(time),
                optional_text(method),
                text(path),
                optional_text(protocol),
                long(status),
                NULL if size is None else PRESENT + long(size),
                NULL if referer is None else optional_text(referer),
                NULL if agent is None else optional_text(agent),
            )
        )
        return ACCESS_LOG, now_ms, payload

    def _unreadable(self, line: Line | LongLine, now_ms: int) -> bytes:
        if isinstance(line, Line):
            head, length = line.data[:HEAD_BYTES], len(line.data)
            digest = hashlib.sha256(line.data).digest()
        else:
            head, length, digest = line.head, line.length, line.sha256
        return self._encode_unreadable(
            {
                "header": {
                    "guid": self._run_id + line.number.to_bytes(8, "big"),
                    "time": now_ms,
                    "server": self._server,
                    "service": self._service,
                },
                "line": head,
                "length": length,
                "sha256": digest,
                "line_number": line.number,
            }
        )
