# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=False
"""The header peek compiled; the same functions as `_peek_pure`, same tests for both.

The counting keeps the current window and server in C variables, since messages come in runs of the
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
    """The header of a payload behind `prefix_bytes` (events.forms); the body is not read.

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


cdef class _Runs:
    """Counts messages in runs of one window and server; a run is added to the dicts at its end."""

    cdef dict counts, delays
    cdef int64_t window_ms, now_ms
    cdef int64_t count, start_ms, end_ms  # the current run
    cdef int64_t delay_count, delay_time_ms  # the current run of one time
    cdef int64_t unreadable
    cdef Py_ssize_t server_size
    cdef unsigned char server[NAME_BYTES_MAX]

    def __cinit__(self, dict counts, dict delays, int64_t window_ms, int64_t now_ms):
        self.counts = counts
        self.delays = delays
        self.window_ms = window_ms
        self.now_ms = now_ms
        self.server_size = -1

    cdef inline bint continues(self, const unsigned char* data, Place* place) noexcept:
        """Whether the message is of the current run; False when its service needs a UTF-8 check."""
        return (
            self.count
            and place.server_size == self.server_size
            and place.time_ms >= self.start_ms
            and place.time_ms < self.end_ms
            and memcmp(data + place.server_start, self.server, self.server_size) == 0
            and _is_ascii(data + place.service_start, place.service_size)
        )

    cdef bint begin(self, bytes held, const unsigned char* data, Place* place) except -1:
        """Begin a run with the message; False when a name in it is not UTF-8."""
        try:
            held[place.service_start : place.service_start + place.service_size].decode()
            held[place.server_start : place.server_start + place.server_size].decode()
        except UnicodeDecodeError:
            return False
        self.end_run()
        memcpy(self.server, data + place.server_start, place.server_size)
        self.server_size = place.server_size
        self.count = 1
        self.start_ms = place.time_ms - place.time_ms % self.window_ms
        if self.window_ms <= 0x7FFFFFFFFFFFFFFF - self.start_ms:
            self.end_ms = self.start_ms + self.window_ms
        else:
            self.end_ms = 0x7FFFFFFFFFFFFFFF
        return True

    cdef int end_run(self) except -1:
        if self.count:
            _add(self.counts, (self.start_ms, self.server[: self.server_size].decode()), self.count)
            self.count = 0
        return 0

    cdef int begin_delay(self, int64_t time_ms) except -1:
        self.end_delay()
        self.delay_time_ms = time_ms
        self.delay_count = 1
        return 0

    cdef int end_delay(self) except -1:
        cdef int64_t delay_ms = 0
        if self.delay_count:
            if self.now_ms > self.delay_time_ms:
                delay_ms = self.now_ms - self.delay_time_ms
            _add(self.delays, delay_ms, self.delay_count)
            self.delay_count = 0
        return 0

    cdef int finish(self) except -1:
        self.end_run()
        self.end_delay()
        if self.unreadable:
            _add(self.counts, UNREADABLE, self.unreadable)
        return 0


def count_by_window(
    payloads,
    int64_t window_ms,
    dict counts,
    dict delays=None,
    now_ms=0,
    *,
    Py_ssize_t prefix_bytes=PREFIX_BYTES_2011,
):
    """Add each payload to `counts[(window start, server)]`; return the number of payloads.

    A payload whose header cannot be read (`peek` would raise) is counted under UNREADABLE. With
    `delays`, each readable one adds to `delays[max(0, now_ms - header.time)]` too. Never raises
    for a payload's content. `window_ms` > 0.
    """
    cdef int64_t counted = 0
    cdef bint has_delays = delays is not None
    cdef const unsigned char* data
    cdef Place place
    cdef bytes held
    cdef _Runs runs
    if window_ms <= 0:
        raise ValueError("window_ms must be above 0")
    runs = _Runs(counts, delays, window_ms, now_ms)
    try:
        for payload in payloads:
            counted += 1
            held = payload if type(payload) is bytes else bytes(payload)
            data = <const unsigned char*>PyBytes_AS_STRING(held)
            if _locate(data, PyBytes_GET_SIZE(held), prefix_bytes, &place) != FINE:
                runs.unreadable += 1
                continue
            if runs.continues(data, &place):
                runs.count += 1
            elif not runs.begin(held, data, &place):
                runs.unreadable += 1
                continue
            if has_delays:
                if runs.delay_count and runs.delay_time_ms == place.time_ms:
                    runs.delay_count += 1
                else:
                    runs.begin_delay(place.time_ms)
    finally:
        runs.finish()
    return counted


cdef int _add(dict counts, key, int64_t number) except -1:
    counts[key] = counts.get(key, 0) + number
    return 0
