# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Avro payloads straight to Arrow buffers, without a Python object per value.

The fast half of `columns`. It decodes payloads that are exactly of one schema and returns the
indexes of all others, which the Python decoder then decodes or rejects. A schema becomes a program,
one step a field in the order of the bytes (made by `fast_columns.fast_decoder`):

    (kind, null branch or -1, size of a fixed, lowest and highest long, factor of a long)

Every read is checked against the payload's end, and a payload must end where its last field does.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8

from kafka2011.events._varint cimport VARINT_READ, read_varint

FIXED, LONG, INT, STRING, BYTES, BOOLEAN, FLOAT, DOUBLE = range(8)

cdef enum:
    K_FIXED = 0
    K_LONG = 1
    K_INT = 2
    K_STRING = 3
    K_BYTES = 4
    K_BOOLEAN = 5
    K_FLOAT = 6
    K_DOUBLE = 7

cdef Py_ssize_t OFFSETS_MAX = 0x7FFFFFFF

cdef struct Column:
    int kind
    int null_branch
    Py_ssize_t size
    int64_t lowest
    int64_t highest
    int64_t factor
    uint8_t* data
    Py_ssize_t used
    Py_ssize_t capacity
    int32_t* offsets
    uint8_t* validity
    Py_ssize_t nulls


cdef inline int _room(Column* column, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t capacity
    cdef uint8_t* grown
    if column.used + more <= column.capacity:
        return 1
    capacity = 2 * column.capacity + more + 64
    grown = <uint8_t*>realloc(column.data, capacity)
    if grown == NULL:
        return 0
    column.data = grown
    column.capacity = capacity
    return 1


cdef inline int _is_ascii(const uint8_t* text, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t position
    cdef uint8_t seen = 0
    for position in range(length):
        seen |= text[position]
    return seen < 0x80


cdef int _is_utf8(const uint8_t* text, Py_ssize_t length) except -1:
    try:
        PyUnicode_DecodeUTF8(<const char*>text, length, NULL)
    except UnicodeDecodeError:
        return 0
    return 1


cdef int _row(
    const uint8_t* data, Py_ssize_t position, Py_ssize_t end, Column* columns, int count,
    Py_ssize_t row,
) except -1:
    """Append one payload's fields as row `row`; 0 when the Python decoder must judge it."""
    cdef int number
    cdef Column* column
    cdef int64_t value
    cdef Py_ssize_t length
    cdef bint is_null
    for number in range(count):
        column = &columns[number]
        is_null = False
        if column.null_branch >= 0:
            if read_varint(data, &position, end, &value) != VARINT_READ or value < 0 or value > 1:
                return 0
            is_null = value == column.null_branch
        if column.kind == K_LONG or column.kind == K_INT:
            if is_null:
                value = 0
            else:
                if read_varint(data, &position, end, &value) != VARINT_READ:
                    return 0
                if value < column.lowest or value > column.highest:
                    return 0
                value *= column.factor
            if column.kind == K_LONG:
                (<int64_t*>column.data)[row] = value
            else:
                (<int32_t*>column.data)[row] = <int32_t>value
        elif column.kind == K_STRING or column.kind == K_BYTES or column.kind == K_FIXED:
            column.used = column.offsets[row]
            length = 0
            if not is_null:
                if column.kind == K_FIXED:
                    length = column.size
                else:
                    if read_varint(data, &position, end, &value) != VARINT_READ or value < 0:
                        return 0
                    if value > end - position:
                        return 0
                    length = <Py_ssize_t>value
                if length > end - position:
                    return 0
                if column.kind == K_STRING and not _is_ascii(data + position, length):
                    if not _is_utf8(data + position, length):
                        return 0
                if not _room(column, length):
                    raise MemoryError()
                memcpy(column.data + column.used, data + position, length)
                column.used += length
                position += length
            column.offsets[row + 1] = <int32_t>column.used
        elif column.kind == K_BOOLEAN:
            if is_null:
                value = 0
            else:
                if position >= end or data[position] > 1:
                    return 0
                value = data[position]
                position += 1
            if value:
                column.data[row >> 3] |= <uint8_t>(1 << (row & 7))
            else:
                column.data[row >> 3] &= <uint8_t>(~(1 << (row & 7)))
        else:
            length = 8 if column.kind == K_DOUBLE else 4
            if is_null:
                memset(column.data + row * length, 0, length)
            elif length > end - position:
                return 0
            else:
                memcpy(column.data + row * length, data + position, length)
                position += length
        if column.null_branch >= 0:
            if is_null:
                column.validity[row >> 3] &= <uint8_t>(~(1 << (row & 7)))
            else:
                column.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
    return position == end


cdef inline Py_ssize_t _width(int kind) noexcept nogil:
    if kind == K_INT or kind == K_FLOAT:
        return 4
    return 8


def decode_columns(list payloads, bytes prefix, list program):
    """(rows, buffers, left): for each column (validity or None, nulls, offsets or None, data) in
    Arrow's layout, and the indexes of the payloads that are not among the rows."""
    cdef Py_ssize_t count = len(payloads)
    cdef int columns_count = len(program)
    cdef Py_ssize_t prefix_size = PyBytes_GET_SIZE(prefix)
    cdef const uint8_t* prefix_data = <const uint8_t*>PyBytes_AS_STRING(prefix)
    cdef Py_ssize_t row = 0
    cdef Py_ssize_t index, size, bits, nulls
    cdef int number
    cdef Column* column
    cdef const uint8_t* data
    cdef bytes payload
    cdef list left = []
    cdef list found = []
    size = 0
    for payload in payloads:
        size += PyBytes_GET_SIZE(payload)
    if size >= OFFSETS_MAX:
        raise OverflowError("more bytes than one Arrow array can hold")
    bits = (count + 7) // 8
    cdef Column* columns = <Column*>calloc(columns_count + 1, sizeof(Column))
    if columns == NULL:
        raise MemoryError()
    try:
        for number in range(columns_count):
            column = &columns[number]
            column.kind, column.null_branch, column.size, column.lowest, column.highest, \
                column.factor = program[number]
            if column.null_branch >= 0:
                column.validity = <uint8_t*>calloc(bits + 1, 1)
                if column.validity == NULL:
                    raise MemoryError()
            if column.kind in (K_STRING, K_BYTES, K_FIXED):
                column.offsets = <int32_t*>calloc(count + 1, sizeof(int32_t))
                column.capacity = 16 * count + 64
                if column.offsets == NULL:
                    raise MemoryError()
            elif column.kind == K_BOOLEAN:
                column.capacity = bits + 1
            else:
                column.capacity = _width(column.kind) * count + 8
            column.data = <uint8_t*>calloc(column.capacity, 1)
            if column.data == NULL:
                raise MemoryError()

        for index in range(count):
            payload = <bytes>payloads[index]
            size = PyBytes_GET_SIZE(payload)
            data = <const uint8_t*>PyBytes_AS_STRING(payload)
            if (
                size >= prefix_size
                and memcmp(data, prefix_data, prefix_size) == 0
                and _row(data, prefix_size, size, columns, columns_count, row)
            ):
                row += 1
            else:
                left.append(index)

        bits = (row + 7) // 8
        for number in range(columns_count):
            column = &columns[number]
            offsets = None
            if column.kind in (K_STRING, K_BYTES, K_FIXED):
                offsets = PyBytes_FromStringAndSize(
                    <char*>column.offsets, (row + 1) * sizeof(int32_t)
                )
                size = column.offsets[row]
            elif column.kind == K_BOOLEAN:
                size = bits
            else:
                size = row * _width(column.kind)
            validity = None
            nulls = 0
            if column.null_branch >= 0:
                for index in range(row):
                    nulls += not (column.validity[index >> 3] >> (index & 7)) & 1
                if nulls:
                    validity = PyBytes_FromStringAndSize(<char*>column.validity, bits)
            found.append(
                (validity, nulls, offsets, PyBytes_FromStringAndSize(<char*>column.data, size))
            )
        return row, found, left
    finally:
        for number in range(columns_count):
            free(columns[number].data)
            free(columns[number].offsets)
            free(columns[number].validity)
        free(columns)
