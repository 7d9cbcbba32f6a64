"""JSON lines of an access log: objects with the member names that servers use. Pure.

nginx writes what its `log_format` says, usually the names of its variables; Caddy, Traefik, Envoy,
Elastic's agents and others have their own names. Of several names for one thing the first that is
present counts. Nested objects are searched, too (Caddy's `request`).
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from kafka2011.services.frontend.access_line import AccessLine, Times, line_of, valid_utf8

# A field of a line -> the members that may hold it, in lower case; `.` for a nested object.
MEMBERS = {
    "host": "remote_addr remote_ip client_ip clientip client_addr clienthost client remote_host "
    "remotehost ip client.ip client.address request.client_ip request.remote_ip source.ip host",
    "ident": "ident remote_logname",
    "user": "remote_user user username user_id clientusername user.name request.user_id",
    "time": "time_iso8601 time_local @timestamp timestamp time datetime date ts msec startutc",
    "request": "request request_line requestline",
    "method": "method request_method requestmethod verb http_method http.request.method "
    "request.method",
    "path": "request_uri path uri url requestpath request_path url.original url.path request.uri",
    "query": "args query_string querystring query url.query",
    "protocol": "server_protocol protocol http_version requestprotocol proto request.proto",
    "status": "status status_code statuscode response_code code response downstreamstatus "
    "http.response.status_code",
    "size": "body_bytes_sent bytes_sent bytes size response_size response_length body_size "
    "downstreamcontentsize http.response.body.bytes",
    "referer": "http_referer http_referrer referer referrer request_referer http.request.referrer "
    "request.headers.referer",
    "agent": "http_user_agent user_agent useragent user-agent agent request_user-agent "
    "user_agent.original request.headers.user-agent",
}
_REQUEST = frozenset(f"{MEMBERS['request']} {MEMBERS['path']}".split())
_NAMES = {field: members.split() for field, members in MEMBERS.items()}
_DEPTH_MAX = 3
_ABSENT = ("", "-")


class JsonParser:
    """Parses lines; one per thread. Never raises for a line's content."""

    def __init__(self) -> None:
        self._times = Times()

    def parse(self, line: bytes) -> AccessLine | None:
        """The line's fields, or None when it is unreadable."""
        try:
            document = json.loads(line.decode("utf-8-sig", "surrogateescape"))
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict):
            return None
        members: dict[str, bytes] = {}
        _collect(document, "", members)
        fields: dict[str, bytes | None] = {}
        for field, names in _NAMES.items():
            fields[field] = next((members[name] for name in names if name in members), None)
        if fields["request"] is None and fields["path"] is None:
            # The request may be empty, as nginx writes it where none came; under a name that is
            # not known every line would be a view of no page.
            if _REQUEST.isdisjoint(_names(document, "")):
                return None
        elif fields["request"] is None and "?" in (path := (fields["path"] or b"").decode()):
            fields["query"] = None  # it is in the path already
            fields["path"] = path.encode()
        return line_of(fields, self._times)


def _collect(
    document: dict[str, Any], prefix: str, members: dict[str, bytes], depth: int = 1
) -> None:
    """Add the members that are texts or numbers to `members`, names in lower case; of a list the
    first. An empty text and `-` are members that are not there."""
    for name, value in document.items():
        full = prefix + name.lower()
        if isinstance(value, list) and value:
            value = value[0]  # noqa: PLW2901
        if isinstance(value, dict):
            if depth < _DEPTH_MAX:
                _collect(value, f"{full}.", members, depth + 1)
        elif isinstance(value, str):
            if value not in _ABSENT:
                members[full] = _utf8(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            members[full] = repr(value).encode()


def _names(document: dict[str, Any], prefix: str, depth: int = 1) -> Iterator[str]:
    """The names of all members, in lower case, also of those that are empty."""
    for name, value in document.items():
        full = prefix + name.lower()
        yield full
        if isinstance(value, dict) and depth < _DEPTH_MAX:
            yield from _names(value, f"{full}.", depth + 1)


def text_of(written: bytes) -> bytes | None:
    """The text between two quotes of JSON, as it is written where JSON has no such text; None for
    one that is empty or `-`."""
    text = written.decode("utf-8", "surrogateescape")
    if "\\" in text:
        with contextlib.suppress(ValueError):
            text = json.loads(f'"{text}"')
    return None if text in _ABSENT else _utf8(text)


def _utf8(text: str) -> bytes:
    """The text with bytes that are not UTF-8 as \\xNN, and halves of characters as \\uNNNN."""
    try:
        return valid_utf8(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")
