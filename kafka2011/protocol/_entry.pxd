# cython: language_level=3, cdivision=True
"""The layout of a log's entry, for the compiled modules.

`protocol.message` has it in words, and the tests hold both to the same vectors. A module that
looks at entries calls `kafka2011_crc32_start` once.
"""

from libc.stdint cimport int32_t, uint32_t

cdef extern from "_crc32.h" nogil:
    void kafka2011_crc32_start()
    uint32_t kafka2011_crc32(const unsigned char *data, size_t size)

cdef enum:
    LENGTH_BYTES = 4
    MAGIC0_OVERHEAD_BYTES = 5
    MAGIC1_OVERHEAD_BYTES = 6
    CODEC_MASK = 3

cdef enum Fault:
    GOOD
    CUT
    BAD

cdef struct Look:
    Py_ssize_t payload_start
    Py_ssize_t end
    int attributes


cdef inline int32_t read_i32(const unsigned char *at) noexcept nogil:
    return <int32_t>(
        (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]
    )


cdef inline void write_i32(unsigned char *at, uint32_t value) noexcept nogil:
    at[0] = <unsigned char>(value >> 24)
    at[1] = <unsigned char>(value >> 16)
    at[2] = <unsigned char>(value >> 8)
    at[3] = <unsigned char>value


cdef inline Fault look(
    const unsigned char *data, Py_ssize_t position, Py_ssize_t total, Look *found
) noexcept nogil:
    """The entry at `position`, where at least 4 bytes are. BAD: ask the pure twin for words."""
    cdef const unsigned char *entry = data + position
    cdef Py_ssize_t length = read_i32(entry)
    cdef Py_ssize_t start
    if length < 0:
        return BAD
    if length > total - position - LENGTH_BYTES:
        return CUT
    if length < MAGIC0_OVERHEAD_BYTES:
        return BAD
    if entry[4] == 1:
        if length < MAGIC1_OVERHEAD_BYTES:
            return BAD
        found.attributes = entry[5]
        start = LENGTH_BYTES + MAGIC1_OVERHEAD_BYTES
    elif entry[4] == 0:
        found.attributes = 0
        start = LENGTH_BYTES + MAGIC0_OVERHEAD_BYTES
    else:
        return BAD
    found.payload_start = position + start
    found.end = position + LENGTH_BYTES + length
    if kafka2011_crc32(entry + start, length + LENGTH_BYTES - start) != <uint32_t>read_i32(
        entry + start - 4
    ):
        return BAD
    return GOOD


cdef inline void outline(
    const unsigned char *data, Py_ssize_t position, Look *found
) noexcept nogil:
    """Where the entry at `position`, which was looked at before, has its payload."""
    cdef const unsigned char *entry = data + position
    found.payload_start = position + LENGTH_BYTES + (
        MAGIC1_OVERHEAD_BYTES if entry[4] == 1 else MAGIC0_OVERHEAD_BYTES
    )
    found.end = position + LENGTH_BYTES + read_i32(entry)
