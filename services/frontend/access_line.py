"""What a readable line of an access log says, and the reading of its parts. Pure.

Every notation leads here: `line_of` makes the fields of a line from the texts that a notation or a
JSON object names, and `Times` reads all forms of time that servers write. A line is readable when
host, time and status can be read.
"""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from itertools import islice
from typing import NamedTuple

# A field's text is cut to this, so that a line of megabytes still fits a message (1,000,000 bytes).
FIELD_BYTES_MAX = 64 * 1024
LONG_MAX = 2**63 - 1
_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()
_YEAR_10000_MS = 253_402_300_800_000  # the first moment beyond the last date
_CACHE_MAX = 10_000

CLF_TIME = rb"\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}"
_CLF = re.compile(CLF_TIME)
_NUMBER = re.compile(rb"(\d{1,20})(?:\.(\d{1,9})\d*)?")
_WORD = re.compile(rb"[^ \t]+")
_MONTHS = {
    name: number
    for number, name in enumerate(
        (b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec").split(), start=1
    )
}


class AccessLine(NamedTuple):
    """A readable line. Texts are valid UTF-8; None where the line has `-` or nothing."""

    host: bytes
    ident: bytes | None
    user: bytes | None
    time: bytes
    method: bytes | None
    path: bytes
    protocol: bytes | None
    status: int
    size: int | None
    referer: bytes | None
    agent: bytes | None
    event_time_ms: int


class Times:
    """Reads times, with a cache, since a log repeats them. `strptime_format`: one that a server was
    set to write; without it, the formats of `moment_ms`."""

    def __init__(self, strptime_format: str = "") -> None:
        self._format = strptime_format
        self._times: dict[bytes, int | None] = {}

    def ms(self, text: bytes) -> int | None:
        """The time in ms since the epoch; None for anything but a time."""
        try:
            return self._times[text]
        except KeyError:
            pass
        if len(self._times) >= _CACHE_MAX:
            self._times.clear()
        found = self._times[text] = (
            _by_strptime(text, self._format) if self._format else moment_ms(text)
        )
        return found


def moment_ms(text: bytes) -> int | None:
    """ms since the epoch from `17/May/2015:10:05:03 +0000`, `2015-05-17T10:05:03.2Z`, or seconds,
    ms, us or ns since the epoch (distinguished by their size); None for anything else."""
    if _CLF.fullmatch(text):
        return _clf_ms(text)
    number = _NUMBER.fullmatch(text)
    if number is None:
        try:
            return _ms_of(datetime.fromisoformat(text.decode()))
        except ValueError:
            return None
    whole, fraction = int(number[1]), (number[2] or b"").ljust(9, b"0")
    if len(number[1]) > 11:  # not seconds: 10**11 seconds are the year 5138
        found = whole // 10 ** ((len(number[1]) - 12) // 3 * 3)  # 12 to 14 digits are ms
    else:
        found = whole * 1000 + int(fraction[:3])
    return found if found < _YEAR_10000_MS else None


def _by_strptime(text: bytes, time_format: str) -> int | None:
    try:
        return _ms_of(datetime.strptime(text.decode(), time_format))
    except ValueError:
        return None


def _ms_of(moment: datetime) -> int:
    """ms since the epoch; a time without a zone is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        passed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except OverflowError as error:
        raise ValueError("no date") from error
    return passed.days * _DAY_MS + passed.seconds * 1000 + passed.microseconds // 1000


def _clf_ms(time: bytes) -> int | None:
    month = _MONTHS.get(time[3:6])
    hour, minute, second = int(time[12:14]), int(time[15:17]), int(time[18:20])
    zone_hour, zone_minute = int(time[22:24]), int(time[24:26])
    # Second 60 is a leap second, which servers do log.
    if month is None or hour > 23 or minute > 59 or second > 60:
        return None
    if zone_hour > 23 or zone_minute > 59:
        return None
    try:
        day = date(int(time[7:11]), month, int(time[:2])).toordinal() - _EPOCH
    except ValueError:
        return None
    zone_s = (zone_hour * 60 + zone_minute) * 60
    if time[21:22] == b"-":
        zone_s = -zone_s
    return day * _DAY_MS + ((hour * 60 + minute) * 60 + second - zone_s) * 1000


def line_of(fields: Mapping[str, bytes | None], times: Times) -> AccessLine | None:
    """A line from named texts: host, ident, user, time, request or method, path, query and
    protocol, status, size, referer, agent. None when it is unreadable."""
    host, time, status = fields.get("host"), fields.get("time"), fields.get("status")
    if not host or host == b"-" or time is None:
        return None
    if status is None or len(status) != 3 or not status.isdigit():
        return None
    event_time_ms = times.ms(time)
    if event_time_ms is None:
        return None
    method, path, protocol = (name(fields.get(one)) for one in ("method", "path", "protocol"))
    request = fields.get("request")
    if request is not None:
        method, path, protocol = request_words(request)
    elif path is not None:
        query = name(fields.get("query"))
        if query:
            path += query if query.startswith(b"?") else b"?" + query
    size = fields.get("size")
    return AccessLine(
        cut(host),
        name(fields.get("ident")),
        name(fields.get("user")),
        cut(time),
        name(method),
        cut(path or b""),
        name(protocol),
        int(status),
        size_of(size) if size is not None else None,
        name(fields.get("referer")),
        name(fields.get("agent")),
        event_time_ms,
    )


def request_words(request: bytes) -> tuple[bytes | None, bytes, bytes | None]:
    """Method, path and protocol; if these are not three words, the whole text is the path."""
    words = [match[0] for match in islice(_WORD.finditer(request), 4)]
    if len(words) == 3:
        return words[0], words[1], words[2]
    return None, request, None


def size_of(text: bytes) -> int | None:
    """A number of bytes; None for anything else."""
    if text.isdigit() and len(text) <= 19 and int(text) <= LONG_MAX:
        return int(text)
    return None


def name(field: bytes | None) -> bytes | None:
    """The field, cut; None for `-`, which servers write if they have no value."""
    return None if field is None or field == b"-" else cut(field)


def cut(field: bytes) -> bytes:
    """The field's first 64 KiB, not ending inside a character."""
    if len(field) <= FIELD_BYTES_MAX:
        return field
    return field[:FIELD_BYTES_MAX].decode("utf-8", "ignore").encode()


def valid_utf8(line: bytes) -> bytes:
    """The line with bytes that are not UTF-8 as \\xNN."""
    if line.isascii():
        return line
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("utf-8", "backslashreplace").encode()
    return line
