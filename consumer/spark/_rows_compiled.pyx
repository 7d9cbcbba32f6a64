# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A fetched set straight to Arrow buffers, without a Python object per message.

The fast half of `rows`. It reads a set whose entries are all plain and good, and returns None for
any other set (a wrapper, a damaged or a cut entry), which the Python code then reads. It reads
headers as `events.peek` does.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from kafka2011.events._varint cimport VARINT_READ, read_varint
from kafka2011.protocol._entry cimport (
    CODEC_MASK,
    GOOD,
    LENGTH_BYTES,
    Look,
    kafka2011_crc32_start,
    look,
    outline,
)

kafka2011_crc32_start()

# `events.header` describes them.
cdef enum:
    GUID_BYTES = 16
    NAME_BYTES_MAX = 255

cdef int64_t TIME_MS_MAX = 253402300799999


cdef inline int _is_ascii(const uint8_t *text, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t position
    cdef uint8_t seen = 0
    for position in range(length):
        seen |= text[position]
    return seen < 0x80


cdef int _name(const uint8_t *data, Py_ssize_t *position, Py_ssize_t end) except -1:
    """Skips one name; 0 when `peek` would reject it."""
    cdef int64_t length = 0
    if read_varint(data, position, end, &length) != VARINT_READ:
        return 0
    if length < 0 or length > NAME_BYTES_MAX or length > end - position[0]:
        return 0
    if not _is_ascii(data + position[0], length):
        try:
            PyUnicode_DecodeUTF8(<const char *>(data + position[0]), length, NULL)
        except UnicodeDecodeError:
            return 0
    position[0] += length
    return 1


cdef int _time(const uint8_t *data, Py_ssize_t size, Py_ssize_t prefix_bytes, int64_t *ms) except -1:
    """The header's time; 0 when the header cannot be read or no calendar has the time."""
    cdef Py_ssize_t position = prefix_bytes + GUID_BYTES
    if size <= position or data[0] != 0 or read_varint(data, &position, size, ms) != VARINT_READ:
        return 0
    if not _name(data, &position, size) or not _name(data, &position, size):
        return 0
    return 0 <= ms[0] <= TIME_MS_MAX


cdef Py_ssize_t _count(const uint8_t *data, Py_ssize_t total, Py_ssize_t *payload_bytes) noexcept nogil:
    """How many entries there are; -1 unless all are plain, whole and good."""
    cdef Py_ssize_t position = 0, count = 0
    cdef Look entry
    payload_bytes[0] = 0
    while position < total:
        if total - position < LENGTH_BYTES or look(data, position, total, &entry) != GOOD:
            return -1
        if entry.attributes & CODEC_MASK:
            return -1
        payload_bytes[0] += entry.end - entry.payload_start
        position = entry.end
        count += 1
    return count


def rows_of(
    object buffer, int64_t offset, Py_ssize_t prefix_bytes, bint with_headers, bint with_payloads
):
    """(rows, starts, next offsets, headers or None, payloads or None), or None for a set that the
    Python code must read.

    `offset` is the log offset of the buffer's first byte. Headers are (times in microseconds,
    validity, nulls, prefix numbers, prefixes): a payload's first `prefix_bytes` are
    prefixes[number], or it is no event where that is None. Payloads are (Arrow offsets, data).
    """
    cdef Py_buffer view
    cdef Py_ssize_t rows, row, payload_bytes, position = 0, used = 0, size
    cdef Look entry
    cdef const uint8_t *data
    cdef const uint8_t *payload
    cdef const uint8_t *known = NULL
    cdef int64_t ms = 0, nulls = 0
    cdef int32_t number = 0
    cdef int64_t *starts
    cdef int64_t *ends
    cdef int64_t *times = NULL
    cdef uint8_t *validity = NULL
    cdef int32_t *numbers = NULL
    cdef int32_t *offsets = NULL
    cdef uint8_t *copied = NULL
    cdef bytes starts_made, ends_made, times_made, validity_made, numbers_made, prefix
    cdef bytes offsets_made, copied_made
    cdef dict by_prefix = {None: 0}
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>view.buf
        with nogil:
            rows = _count(data, view.len, &payload_bytes)
        if rows < 0 or payload_bytes > 0x7FFFFFFF:
            return None
        starts_made = PyBytes_FromStringAndSize(NULL, rows * sizeof(int64_t))
        ends_made = PyBytes_FromStringAndSize(NULL, rows * sizeof(int64_t))
        starts = <int64_t *>PyBytes_AS_STRING(starts_made)
        ends = <int64_t *>PyBytes_AS_STRING(ends_made)
        if with_headers:
            times_made = PyBytes_FromStringAndSize(NULL, rows * sizeof(int64_t))
            validity_made = PyBytes_FromStringAndSize(NULL, (rows + 7) // 8)
            numbers_made = PyBytes_FromStringAndSize(NULL, rows * sizeof(int32_t))
            times = <int64_t *>PyBytes_AS_STRING(times_made)
            validity = <uint8_t *>PyBytes_AS_STRING(validity_made)
            numbers = <int32_t *>PyBytes_AS_STRING(numbers_made)
            memset(validity, 0, (rows + 7) // 8)
        if with_payloads:
            offsets_made = PyBytes_FromStringAndSize(NULL, (rows + 1) * sizeof(int32_t))
            copied_made = PyBytes_FromStringAndSize(NULL, payload_bytes)
            offsets = <int32_t *>PyBytes_AS_STRING(offsets_made)
            copied = <uint8_t *>PyBytes_AS_STRING(copied_made)
            offsets[0] = 0
        for row in range(rows):
            outline(data, position, &entry)
            size = entry.end - entry.payload_start
            starts[row] = offset + position
            position = entry.end
            ends[row] = offset + position
            payload = data + entry.payload_start
            if with_payloads:
                memcpy(copied + used, payload, size)
                used += size
                offsets[row + 1] = <int32_t>used
            if with_headers:
                if _time(payload, size, prefix_bytes, &ms):
                    times[row] = 1000 * ms
                    validity[row >> 3] |= <uint8_t>(1 << (row & 7))
                else:
                    times[row] = 0
                    nulls += 1
                if size < prefix_bytes or payload[0] != 0:
                    numbers[row] = 0
                else:
                    # Most messages of a partition have the schema of the one before.
                    if known == NULL or memcmp(known, payload, prefix_bytes) != 0:
                        prefix = payload[:prefix_bytes]
                        number = by_prefix.setdefault(prefix, len(by_prefix))
                        known = payload
                    numbers[row] = number
    finally:
        PyBuffer_Release(&view)
    headers = payloads = None
    if with_headers:
        headers = (times_made, validity_made, nulls, numbers_made, list(by_prefix))
    if with_payloads:
        payloads = (offsets_made, copied_made)
    return rows, starts_made, ends_made, headers, payloads
