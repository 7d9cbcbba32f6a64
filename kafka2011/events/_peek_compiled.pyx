# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=False
"""The header peek compiled; the same functions as `_peek_pure`, same tests for both.

The counting keeps the last window and server in C variables, since messages come in runs of the
same: most cost a few nanoseconds and no Python object.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy

from kafka2011.events._varint cimport VARINT_CUT, VARINT_READ, Varint, read_varint
from kafka2011.events.errors import HeaderUnreadable
from kafka2011.events.header import UNREADABLE, Header

cdef enum:
    GUID_BYTES = 16
    NAME_BYTES_MAX = 255
    PREFIX_BYTES_2011 = 17

cdef enum Fault:
    FINE = 0
    START = 1
    CUT = 2
    LONG_NUMBER = 3
    BAD_NAME = 4
    NEGATIVE_TIME = 5
    NOT_UTF8 = 6

cdef struct Place:
    int64_t time_ms
    Py_ssize_t server_start
    Py_ssize_t server_size
    Py_ssize_t service_start
    Py_ssize_t service_size

_REASONS = {
    START: "the payload does not start as an event does",
    CUT: "the payload ends inside its header",
    LONG_NUMBER: "a number in the header is larger than 64 bits",
    BAD_NAME: "a name in the header has a length out of 0 to 255",
    NEGATIVE_TIME: "the header's time is negative",
    NOT_UTF8: "a name in the header is not UTF-8",
}


cdef inline Fault _number(
    const unsigned char* data, Py_ssize_t size, Py_ssize_t* position, int64_t* value
) noexcept nogil:
    cdef Varint outcome = read_varint(data, position, size, value)
    if outcome == VARINT_READ:
        return FINE
    return CUT if outcome == VARINT_CUT else LONG_NUMBER


cdef Fault _locate(
    const unsigned char* data, Py_ssize_t size, Py_ssize_t prefix_bytes, Place* place
) noexcept nogil:
    cdef Py_ssize_t position = prefix_bytes + GUID_BYTES
    cdef int64_t length = 0
    cdef Fault fault
    if prefix_bytes < 1 or size <= position or data[0] != 0:
        return START
    fault = _number(data, size, &position, &place.time_ms)
    if fault != FINE:
        return fault
    fault = _number(data, size, &position, &length)
    if fault != FINE:
        return fault
    if length < 0 or length > NAME_BYTES_MAX:
        return BAD_NAME
    place.server_start = position
    place.server_size = length
    position += length
    fault = _number(data, size, &position, &length)
    if fault != FINE:
        return fault
    if length < 0 or length > NAME_BYTES_MAX:
        return BAD_NAME
    place.service_start = position
    place.service_size = length
    if position + length > size:
        return CUT
    if place.time_ms < 0:
        return NEGATIVE_TIME
    return FINE


cdef inline bint _is_ascii(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if data[i] >= 0x80:
            return False
    return True


def peek(payload, Py_ssize_t prefix_bytes=PREFIX_BYTES_2011):
    """The header of a payload behind `prefix_bytes` (events.forms); the body is not looked at.

    Raises HeaderUnreadable for anything else: count it as unreadable and go on.
    """
    cdef bytes held = payload if type(payload) is bytes else bytes(payload)
    cdef const unsigned char* data = <const unsigned char*>PyBytes_AS_STRING(held)
    cdef Place place
    cdef Fault fault = _locate(data, PyBytes_GET_SIZE(held), prefix_bytes, &place)
    if fault != FINE:
        raise HeaderUnreadable(_REASONS[fault])
    try:
        server = PyUnicode_DecodeUTF8(
            <const char*>data + place.server_start, place.server_size, NULL
        )
        service = PyUnicode_DecodeUTF8(
            <const char*>data + place.service_start, place.service_size, NULL
        )
    except UnicodeDecodeError:
        raise HeaderUnreadable(_REASONS[NOT_UTF8]) from None
    guid = PyBytes_FromStringAndSize(<const char*>data + prefix_bytes, GUID_BYTES)
    return Header(guid, place.time_ms, server, service)


def count_by_window(
    payloads,
    int64_t window_ms,
    dict counts,
    dict delays=None,
    now_ms=0,
    *,
    Py_ssize_t prefix_bytes=PREFIX_BYTES_2011,
):
    """Add each payload to `counts[(window start, server)]`; return how many payloads there were.

    A payload whose header cannot be read (`peek` would raise) is counted under UNREADABLE. With
    `delays`, each readable one adds to `delays[max(0, now_ms - header.time)]` too. Never raises
    for what stands in a payload. `window_ms` > 0.
    """
    cdef int64_t now = now_ms
    cdef int64_t counted = 0, unreadable = 0
    cdef int64_t run = 0, run_start = 0, run_end = 0  # the window that is being counted
    cdef int64_t delay_run = 0, delay_time = 0
    cdef unsigned char server[NAME_BYTES_MAX]
    cdef Py_ssize_t server_size = -1
    cdef const unsigned char* data
    cdef Place place
    cdef bytes held
    if window_ms <= 0:
        raise ValueError("window_ms must be above 0")
    try:
        for payload in payloads:
            counted += 1
            held = payload if type(payload) is bytes else bytes(payload)
            data = <const unsigned char*>PyBytes_AS_STRING(held)
            if _locate(data, PyBytes_GET_SIZE(held), prefix_bytes, &place) != FINE:
                unreadable += 1
                continue
            if (
                run
                and place.server_size == server_size
                and place.time_ms >= run_start
                and place.time_ms < run_end
                and memcmp(data + place.server_start, server, server_size) == 0
                and _is_ascii(data + place.service_start, place.service_size)
            ):
                run += 1
            else:
                try:
                    (<bytes>held)[
                        place.service_start : place.service_start + place.service_size
                    ].decode()
                    name = held[
                        place.server_start : place.server_start + place.server_size
                    ].decode()
                except UnicodeDecodeError:
                    unreadable += 1
                    continue
                if run:
                    _add(counts, (run_start, server[:server_size].decode()), run)
                memcpy(server, data + place.server_start, place.server_size)
                server_size = place.server_size
                run = 1
                run_start = place.time_ms - place.time_ms % window_ms
                run_end = (
                    run_start + window_ms
                    if window_ms <= 0x7FFFFFFFFFFFFFFF - run_start
                    else 0x7FFFFFFFFFFFFFFF
                )
            if delays is not None:
                if delay_run and delay_time == place.time_ms:
                    delay_run += 1
                else:
                    if delay_run:
                        _add(delays, now - delay_time if now > delay_time else 0, delay_run)
                    delay_time = place.time_ms
                    delay_run = 1
    finally:
        if run:
            _add(counts, (run_start, server[:server_size].decode()), run)
        if delay_run:
            _add(delays, now - delay_time if now > delay_time else 0, delay_run)
        if unreadable:
            _add(counts, UNREADABLE, unreadable)
    return counted


cdef int _add(dict counts, key, int64_t number) except -1:
    counts[key] = counts.get(key, 0) + number
    return 0
