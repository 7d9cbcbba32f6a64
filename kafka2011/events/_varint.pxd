# cython: language_level=3
"""Avro's variable-length numbers, for the compiled modules."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum Varint:
    VARINT_READ = 0
    VARINT_CUT = 1  # the bytes end inside the number
    VARINT_TOO_LONG = 2  # more than 64 bits


cdef inline Varint read_varint(
    const uint8_t *data, Py_ssize_t *position, Py_ssize_t end, int64_t *value
) noexcept nogil:
    """Reads the zigzag varint at `position`, which moves behind it."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if position[0] >= end:
            return VARINT_CUT
        byte = data[position[0]]
        position[0] += 1
        if shift == 63 and byte > 1:
            return VARINT_TOO_LONG
        raw |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            break
        shift += 7
    value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return VARINT_READ
