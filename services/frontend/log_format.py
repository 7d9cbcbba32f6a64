"""A log's format in the server's own notation, compiled to a parser of its lines. Pure.

    %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"              Apache's LogFormat
    $remote_addr - $remote_user [$time_local] "$request" $status        nginx's log_format

Also accepted: the whole directive as in the server's configuration, and the names `auto` (common,
combined and their variations, JSON lines), `common`, `combined` and `json`. Fields that events do
not have are skipped. Each field ends where the text after it in the notation begins; one in quotes
may have escaped quotes inside. A last field may lack its closing quote. In a notation of JSON a
field is what JSON means by it, and an empty one is not there.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from kafka2011.services.frontend.access_line import AccessLine, Times, line_of, valid_utf8
from kafka2011.services.frontend.access_log import LineParser, Parser
from kafka2011.services.frontend.json_lines import JsonParser, text_of
from kafka2011.services.frontend.lines import LINE_BYTES_MAX

FORMAT_DEFAULT = "auto"
FORMAT_DOC = (
    "format of the access log: auto (common, combined, JSON lines), or the server's own notation, "
    "Apache's (%h ...) or nginx's ($remote_addr ...)"
)
_NAMED: dict[str, type[LineParser | JsonParser]] = {
    "auto": LineParser,
    "common": LineParser,
    "combined": LineParser,
    "json": JsonParser,
}

_APACHE = re.compile(r"%(?:%|[<>!,\d]*(?:\{([^}]*)\})?[<>]?(\^t[io]|[A-Za-z]))")
_NGINX = re.compile(r"\$(?:\{(\w+)\}|(\w+))")

# The letters of Apache's notation, its request headers, and nginx's variables -> fields of a line.
_LETTERS = {
    "h": "host", "a": "host", "l": "ident", "u": "user", "r": "request", "m": "method",
    "U": "path", "q": "query", "H": "protocol", "s": "status", "b": "size", "B": "size",
    "O": "size",
}  # fmt: skip
_HEADERS = {"referer": "referer", "user-agent": "agent", "x-forwarded-for": "host"}
_VARIABLES = {
    "remote_addr": "host", "realip_remote_addr": "host", "http_x_forwarded_for": "host",
    "http_x_real_ip": "host", "proxy_protocol_addr": "host", "remote_user": "user",
    "time_local": "time", "time_iso8601": "time", "msec": "time", "request": "request",
    "request_method": "method", "request_uri": "path", "uri": "path", "document_uri": "path",
    "is_args": "query", "args": "query", "query_string": "query", "server_protocol": "protocol",
    "status": "status", "body_bytes_sent": "size", "bytes_sent": "size", "http_referer": "referer",
    "http_user_agent": "agent",
}  # fmt: skip
# Used only if nothing else gives the same field.
_SECOND_CHOICE = {
    "O", "x-forwarded-for", "http_x_forwarded_for", "http_x_real_ip", "realip_remote_addr",
    "bytes_sent",
}  # fmt: skip
_SHAPES = {"status": r"\d{3}", "size": r"(?:\d++|-)"}
_FORWARDED = {"x-forwarded-for", "http_x_forwarded_for"}  # a list of addresses, with spaces
# A field that may contain what ends it. It makes many attempts, so lines with it are bounded.
_LAZY = ".{0,8192}?"
_LAZY_LINE_BYTES_MAX = 16 * 1024
_EPOCHS = ("sec", "msec", "usec", "%s")
# Directives of strftime(3) that Python's strptime lacks.
_SHORT_FORMS = {
    "%T": "%H:%M:%S",
    "%F": "%Y-%m-%d",
    "%D": "%m/%d/%y",
    "%R": "%H:%M",
    "%e": "%d",
    "%h": "%b",
}
_NEEDED = {
    "host": "the client's address (%h, $remote_addr)",
    "time": "the time (%t, $time_local, $time_iso8601)",
    "request": "the request (%r or %m and %U, $request or $request_method and $request_uri)",
    "status": "the status (%>s, $status)",
}


class _Part(NamedTuple):
    """A text between fields (`field` is None), or a field: its name in the notation, and the field
    of a line that it is, empty for one that events do not have."""

    text: str
    field: str | None = None
    time_format: str = ""
    is_bracketed: bool = False  # Apache's %t, which writes its own brackets


def parser_of(notation: str) -> Parser:
    """The parser of lines in this format. Raises ValueError, with one line."""
    text, is_json = _directive(notation.strip())
    named = _NAMED.get(text)
    if named is not None:
        return named()
    if "$" not in text and "%" not in text:
        raise ValueError(
            f"{text!r} is no log format: give {', '.join(_NAMED)}, or Apache's (%h ...) "
            "or nginx's ($remote_addr ...) notation"
        )
    return NotationParser(text, is_json=is_json)


def log_format(notation: str) -> str:
    """A setting's value, unchanged. Raises ValueError for anything but a format."""
    parser_of(notation)
    return notation


class NotationParser:
    """Parses lines in one notation; one per thread. Never raises for a line's content."""

    def __init__(self, notation: str, *, is_json: bool) -> None:
        """`is_json`: texts are escaped as in JSON. Raises ValueError for a notation from which no
        line can be read."""
        found = _nginx_parts(notation) if "$" in notation else _apache_parts(notation)
        parts = _joined(found)
        chosen = _chosen(parts)
        self._is_json = is_json
        self._fields = [parts[at].field or "" for at in sorted(chosen)]
        pattern = _pattern(parts, chosen)
        self._line = re.compile(pattern.encode(), re.DOTALL)
        self._line_bytes_max = _LAZY_LINE_BYTES_MAX if _LAZY in pattern else LINE_BYTES_MAX
        formats = [parts[at].time_format for at in chosen if parts[at].field == "time"]
        self._times = Times(formats[0])

    def parse(self, line: bytes) -> AccessLine | None:
        """The line's fields, or None when it is unreadable."""
        if len(line) > self._line_bytes_max:
            return None
        match = self._line.match(line if self._is_json else valid_utf8(line))
        if match is None:
            return None
        values = map(text_of, match.groups()) if self._is_json else match.groups()
        fields: dict[str, bytes | None] = dict(zip(self._fields, values, strict=True))
        fields["host"] = (fields["host"] or b"").partition(b",")[0]  # without forwarding proxies
        return line_of(fields, self._times)


def _directive(text: str) -> tuple[str, bool]:
    """The notation in a directive `LogFormat "..." name` or `log_format name '...' '...';`, without
    the backslashes that quotes need there, and whether its texts are escaped as in JSON."""
    word, is_json = text.partition(" ")[0], False
    if word in ("LogFormat", "log_format"):
        try:
            words = shlex.split(text.rstrip().removesuffix(";"))
        except ValueError as error:
            raise ValueError(f"the log format has an open quote: {error}") from None
        if word == "LogFormat":
            text = words[1] if len(words) > 1 else ""
        else:
            text = "".join(one for one in words[2:] if not one.startswith("escape="))
            is_json = "escape=json" in words
    return text.replace('\\"', '"').replace("\\t", "\t"), is_json or text.startswith("{")


def _apache_parts(notation: str) -> Iterator[_Part]:
    at = 0
    for match in _APACHE.finditer(notation):
        yield _Part(notation[at : match.start()])
        at = match.end()
        argument, letter = match.groups()
        if letter is None:
            yield _Part("%")
        elif letter == "t":
            yield _apache_time(argument)
        elif letter == "i":
            header = (argument or "").lower()
            yield _Part(header, _HEADERS.get(header, ""))
        else:
            yield _Part(letter, _LETTERS.get(letter, "") if argument in (None, "c") else "")
    yield _Part(notation[at:])


def _apache_time(argument: str | None) -> _Part:
    if argument is None:
        return _Part("t", "time", is_bracketed=True)
    kind = argument.removeprefix("begin:").removeprefix("end:")
    if kind in _EPOCHS:
        return _Part("t", "time")
    for short, whole in _SHORT_FORMS.items():
        kind = kind.replace(short, whole)
    # Without a day it is a fraction or a zone, which follows the time.
    is_time = "%d" in kind or "%j" in kind
    if is_time:
        _check_time_format(kind)
    return _Part("t", "time" if is_time else "", kind)


def _check_time_format(kind: str) -> None:
    """Raise ValueError for a format of strftime(3) that Python cannot read."""
    written = datetime(2015, 5, 17, 10, 5, 3, tzinfo=UTC).strftime(kind)
    try:
        datetime.strptime(written, kind)
    except (ValueError, re.error) as error:
        raise ValueError(f"the time {kind!r} of the log format cannot be read: {error}") from None


def _nginx_parts(notation: str) -> Iterator[_Part]:
    at = 0
    for match in _NGINX.finditer(notation):
        yield _Part(notation[at : match.start()])
        at = match.end()
        variable = match[1] or match[2]
        yield _Part(variable, _VARIABLES.get(variable, ""))
    yield _Part(notation[at:])


def _joined(parts: Iterable[_Part]) -> list[_Part]:
    """The parts with adjacent texts joined, and a path joined with the query after it."""
    found: list[_Part] = []
    for part in parts:
        last = found[-1] if found else _Part("")
        if part.field is None:
            if not part.text:
                continue
            if found and last.field is None:
                found[-1] = _Part(last.text + part.text)
                continue
        elif found and last.field is not None:
            if (last.field, part.field) == ("path", "query"):
                continue
            if not part.is_bracketed and not last.is_bracketed:
                raise ValueError(
                    f"the log format has nothing between {last.text} and {part.text}: "
                    "where one ends cannot be known"
                )
        found.append(part)
    return found


def _chosen(parts: Sequence[_Part]) -> set[int]:
    """The indices of the parts to read: one per field, not a second choice if there is another."""
    best: dict[str, int] = {}
    for at, part in enumerate(parts):
        if part.field and (
            part.field not in best or parts[best[part.field]].text in _SECOND_CHOICE
        ):
            best[part.field] = at
    has = set(best) | ({"request"} if "path" in best else set())
    for field, words in _NEEDED.items():
        if field not in has:
            raise ValueError(f"the log format lacks {words}")
    return set(best.values())


def _pattern(parts: Sequence[_Part], chosen: set[int]) -> str:
    found = []
    for at, part in enumerate(parts):
        if part.field is None:
            found.append(re.escape(part.text))
            continue
        before = parts[at - 1].text[-1:] if at else ""
        behind = parts[at + 1] if at + 1 < len(parts) else _Part(" ")
        group = "(" if at in chosen else "(?:"
        if part.is_bracketed:
            found.append(rf"\[{group}[^\]]++)\]")
        else:
            found.append(group + _field(part, before, behind) + ")")
    if len(parts) > 1 and parts[-1] == _Part('"'):
        found[-1] = '(?:"|$)'  # a line that was cut off
    return "".join(found) + r"(?:[ \t].*)?$"


def _field(part: _Part, before: str, behind: _Part) -> str:
    """The pattern of one field, between the character `before` and the part `behind`."""
    end = "[" if behind.is_bracketed else behind.text[0]
    if before == '"' == end:
        return r'[^"\\]*+(?:\\.[^"\\]*+)*+'
    if part.field in _SHAPES:
        return _SHAPES[part.field]
    if part.text in _FORWARDED:
        return "[^ ,]++(?:, ?[^ ,]++)*+"
    if part.text.startswith("upstream_") and end == " " and behind.text[:2] != " :":
        return "[^ ,]++(?:(?:, | : )[^ ,]++)*+"  # each server that nginx tried
    if part.field == "request" or end in part.time_format:
        return _LAZY
    return rf"[^{re.escape(end)}]*+"
