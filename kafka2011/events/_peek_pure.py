"""The header peek in plain Python: the same functions and tests as `_peek_compiled`."""

from collections.abc import Iterable

from kafka2011.events.errors import HeaderUnreadable
from kafka2011.events.header import (
    GUID_BYTES,
    NAME_BYTES_MAX,
    PREFIX_BYTES_2011,
    UNREADABLE,
    Header,
)

_SIX = 6
_KNOWN_MAX = 10_000
_CUT = "the payload ends inside its header"


def varint(payload: bytes, position: int) -> tuple[int, int]:
    """The zigzag varint of at most 64 bits at `position`, and the position behind it.

    Raises IndexError if it is cut, HeaderUnreadable if it is longer.
    """
    shift = 0
    raw = 0
    while True:
        byte = payload[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise HeaderUnreadable("a number in the header is longer than ten bytes")
    if raw >> 64:
        raise HeaderUnreadable("a number in the header is larger than 64 bits")
    return (raw >> 1) ^ -(raw & 1), position


def _name(payload: bytes, position: int) -> tuple[bytes, int]:
    length, position = varint(payload, position)
    if not 0 <= length <= NAME_BYTES_MAX:
        raise HeaderUnreadable(f"a name in the header has a length of {length}")
    end = position + length
    if end > len(payload):
        raise HeaderUnreadable(_CUT)
    return payload[position:end], end


def peek(payload: bytes, prefix_bytes: int = PREFIX_BYTES_2011) -> Header:
    """The header of a payload behind `prefix_bytes` (events.forms); the body is not read.

    Raises HeaderUnreadable for anything else: count it as unreadable and go on.
    """
    if not isinstance(payload, bytes):
        payload = bytes(payload)
    time_start = prefix_bytes + GUID_BYTES
    if prefix_bytes < 1 or len(payload) <= time_start or payload[0] != 0:
        raise HeaderUnreadable("the payload does not start as an event does")
    try:
        time_ms, position = varint(payload, time_start)
        server, position = _name(payload, position)
        service, position = _name(payload, position)
        if time_ms < 0:
            raise HeaderUnreadable(f"the header's time is {time_ms}")
        guid = payload[prefix_bytes:time_start]
        return Header(guid, time_ms, server.decode("utf-8"), service.decode("utf-8"))
    except IndexError:
        raise HeaderUnreadable(_CUT) from None
    except UnicodeDecodeError:
        raise HeaderUnreadable("a name in the header is not UTF-8") from None


class _Known:
    """Header fields that `peek` has accepted, by their bytes.

    A partition's messages come from few servers, many in the same millisecond: bytes that were
    parsed once need only be looked up.
    """

    def __init__(self) -> None:
        self.times: dict[bytes, int] = {}  # six-byte varint -> ms (all times from 1974 to 2039)
        self.names: dict[bytes, str] = {}  # one-byte length and UTF-8 -> text

    def add(self, raw_time: bytes, header: Header) -> None:
        if len(self.times) > _KNOWN_MAX or len(self.names) > _KNOWN_MAX:
            self.times.clear()
            self.names.clear()
        if len(raw_time) == _SIX and raw_time[-1] < 0x80 and min(raw_time[:-1]) >= 0x80:
            self.times[bytes(raw_time)] = header.time_ms
        for name in (header.server, header.service):
            encoded = name.encode()
            if len(encoded) < 64:
                self.names[bytes([len(encoded) << 1]) + encoded] = name


def count_by_window(
    payloads: Iterable[bytes],
    window_ms: int,
    counts: dict[tuple[int, str], int],
    delays: dict[int, int] | None = None,
    now_ms: int = 0,
    *,
    prefix_bytes: int = PREFIX_BYTES_2011,
) -> int:
    """Add each payload to `counts[(window start, server)]`; return the number of payloads.

    A payload whose header cannot be read (`peek` would raise) is counted under UNREADABLE. With
    `delays`, each readable one adds to `delays[max(0, now_ms - header.time)]` too. Never raises
    for a payload's content. `window_ms` > 0.
    """
    if window_ms <= 0:
        raise ValueError("window_ms must be above 0")
    counted = 0
    time_start = prefix_bytes + GUID_BYTES
    names_start = time_start + _SIX  # if the time takes six bytes
    known = _Known()
    times, names = known.times, known.names
    for payload in payloads:
        counted += 1
        raw_time = payload[time_start:names_start]
        time_ms = times.get(raw_time)
        server = None
        if time_ms is not None and payload[0] == 0 and len(payload) > names_start:
            service_start = names_start + 1 + (payload[names_start] >> 1)
            server = names.get(payload[names_start:service_start])
            if server is not None and len(payload) > service_start:
                end = service_start + 1 + (payload[service_start] >> 1)
                if payload[service_start:end] not in names:
                    server = None
            else:
                server = None
        if server is None or time_ms is None:
            try:
                header = peek(payload, prefix_bytes)
            except HeaderUnreadable:
                counts[UNREADABLE] = counts.get(UNREADABLE, 0) + 1
                continue
            time_ms, server = header.time_ms, header.server
            known.add(raw_time, header)
        key = (time_ms - time_ms % window_ms, server)
        counts[key] = counts.get(key, 0) + 1
        if delays is not None:
            delay_ms = now_ms - time_ms if now_ms > time_ms else 0
            delays[delay_ms] = delays.get(delay_ms, 0) + 1
    return counted
