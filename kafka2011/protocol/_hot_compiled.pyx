# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=True
"""The loops over message sets, compiled: the twin of `_hot_pure`, held to the same tests.

Each function takes any contiguous buffer without copying it and does the CRC itself (`_crc32.h`).
Good bytes never leave this file; what is wrong with bad ones is described by the pure twin, so that
both say the same.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp, memcpy, memmove

from kafka2011.protocol import _hot_pure
from kafka2011.protocol._entry cimport (
    BAD,
    CODEC_MASK,
    CUT,
    GOOD,
    LENGTH_BYTES,
    MAGIC0_OVERHEAD_BYTES,
    MAGIC1_OVERHEAD_BYTES,
    Fault,
    Look,
    kafka2011_crc32,
    kafka2011_crc32_start,
    look,
    outline,
    read_i32,
    write_i32,
)
from kafka2011.protocol.compression import DECOMPRESSED_BYTES_MAX, DecompressionBudget
from kafka2011.protocol.errors import (
    InvalidMessage,
    LocalProtocolError,
    MessageLargerThanFetchSize,
    MessageSizeTooLarge,
)
from kafka2011.protocol.message import PAYLOAD_BYTES_MAX, Ending, Scan

cdef extern from "_crc32.h" nogil:
    uint32_t kafka2011_crc32_tables_only(const unsigned char *data, size_t size)
    int kafka2011_crc32_folds

kafka2011_crc32_start()

COMPILED = True
CRC_FOLDS = bool(kafka2011_crc32_folds)

cdef enum:
    # size, request id, topic length (see `protocol.requests`)
    PRODUCE_HEAD_BYTES = 8
    MERGED_SET_BYTES_MAX = 32768

cdef Py_ssize_t PAYLOAD_MAX = PAYLOAD_BYTES_MAX
cdef int64_t NO_LIMIT = 2**63 - 1


cdef enum Stop:
    AT_END
    AT_CUT
    AT_BAD
    AT_WRAPPER
    AT_TOO_LARGE

# How far a walk has come: where the next entry starts, how many are behind, the largest payload.
cdef struct Walk:
    Py_ssize_t position
    Py_ssize_t entry_count
    Py_ssize_t largest
    Look entry

# Other threads may go on during a longer walk; letting them takes about as long as 1 KiB of it.
cdef enum:
    WALK_ALONE_BYTES_MAX = 65536


cdef Stop walk_on(
    const unsigned char *data, Py_ssize_t total, Py_ssize_t payload_bytes_max, Walk *walk
) noexcept nogil:
    """Pass plain entries up to what is something else; a wrapper and a large one are counted."""
    cdef Fault fault
    cdef Py_ssize_t size
    while total - walk.position >= LENGTH_BYTES:
        fault = look(data, walk.position, total, &walk.entry)
        if fault != GOOD:
            return AT_CUT if fault == CUT else AT_BAD
        size = walk.entry.end - walk.entry.payload_start
        if size > walk.largest:
            walk.largest = size
            if size > payload_bytes_max:
                return AT_TOO_LARGE
        walk.entry_count += 1
        walk.position = walk.entry.end
        if walk.entry.attributes & CODEC_MASK:
            return AT_WRAPPER
    return AT_END


cdef Stop walked(
    const unsigned char *data, Py_ssize_t total, Py_ssize_t payload_bytes_max, Walk *walk
):
    cdef Stop stop
    if total - walk.position <= WALK_ALONE_BYTES_MAX:
        return walk_on(data, total, payload_bytes_max, walk)
    with nogil:
        stop = walk_on(data, total, payload_bytes_max, walk)
    return stop


cdef bytes copied(const unsigned char *data, const Look *entry):
    return PyBytes_FromStringAndSize(
        <const char *>(data + entry.payload_start), entry.end - entry.payload_start
    )


cdef object fault_at(object buffer, Py_ssize_t position):
    return InvalidMessage(_hot_pure.fault_text(buffer, position), position)


# Produce ---------------------------------------------------------------------------------------


def scan(object buffer, Py_ssize_t message_bytes_max, object budget):
    """Validate a produced set (see `message_set.scan`)."""
    cdef Py_buffer view
    cdef Walk walk
    cdef Stop stop
    cdef Py_ssize_t start, message_count
    cdef const unsigned char *data
    cdef list wrappers = None
    walk.position = walk.entry_count = walk.largest = 0
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const unsigned char *>view.buf
        while True:
            stop = walked(data, view.len, message_bytes_max, &walk)
            if stop != AT_WRAPPER:
                break
            if wrappers is None:
                wrappers = []
            # A walk stops behind the wrapper.
            start = walk.entry.payload_start - LENGTH_BYTES - MAGIC1_OVERHEAD_BYTES
            wrappers.append(
                (start, walk.entry.attributes & CODEC_MASK, copied(data, &walk.entry))
            )
    finally:
        PyBuffer_Release(&view)
    if stop == AT_TOO_LARGE:
        raise MessageSizeTooLarge(
            f"payload of {walk.largest} bytes is above the limit of {message_bytes_max}"
        )
    if stop == AT_BAD or (stop == AT_CUT and not walk.entry_count):
        raise fault_at(buffer, walk.position)
    message_count = walk.entry_count
    if wrappers is not None:
        for wrapper_position, codec, payload in wrappers:
            try:
                message_count += count_inner(codec, payload, budget, 1) - 1
            except InvalidMessage as error:
                error.position = wrapper_position
                raise
    # Past the class's own Python-level __new__, which would double the cost of a small set.
    return tuple.__new__(Scan, (walk.position, message_count))


cdef Py_ssize_t count_inner(object codec, bytes payload, object budget, int depth) except -1:
    cdef bytes unpacked = budget.decompress(codec, payload, depth)
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(unpacked)
    cdef Py_ssize_t total = len(unpacked), message_count
    cdef Walk walk
    cdef Stop stop
    # First the whole level, then what is nested in it, as the pure twin does.
    cdef list wrappers = None
    walk.position = walk.entry_count = walk.largest = 0
    while True:
        stop = walked(data, total, PAYLOAD_MAX, &walk)
        if stop != AT_WRAPPER:
            break
        if wrappers is None:
            wrappers = []
        wrappers.append((walk.entry.attributes & CODEC_MASK, copied(data, &walk.entry)))
    if stop == AT_BAD or (stop == AT_CUT and not walk.entry_count):
        raise fault_at(unpacked, walk.position)
    message_count = walk.entry_count
    if wrappers is not None:
        message_count -= len(wrappers)
        unpacked = None  # the wrappers are copies: levels do not add up
        for inner_codec, inner_payload in wrappers:
            message_count += count_inner(inner_codec, inner_payload, budget, depth + 1)
    return message_count


def produce_runs(
    object buffer,
    Py_ssize_t start,
    Py_ssize_t end,
    Py_ssize_t frame_bytes_max,
    Py_ssize_t message_bytes_max,
):
    """Take the plain Produce frames at the start of a buffer (see `requests.produce_runs`)."""
    cdef Py_buffer view
    cdef Look entry
    cdef unsigned char *data
    cdef const unsigned char *route_start = NULL
    cdef Py_ssize_t position = start, frame_end, set_start, set_size, at, route_size = 0
    cdef Py_ssize_t size, message_count
    # The run that is being gathered; none while frame_count is 0.
    cdef Py_ssize_t run_start = 0, run_end = 0, run_messages = 0, frame_count = 0
    cdef list runs = []
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        data = <unsigned char *>view.buf
        if not 0 <= start <= end <= view.len:
            raise ValueError("produce_runs: start and end must lie in the buffer")
        while end - position >= PRODUCE_HEAD_BYTES:
            size = read_i32(data + position)
            frame_end = position + LENGTH_BYTES + size
            if size <= 0 or size > frame_bytes_max or frame_end > end:
                break
            # The route: topic length, topic, partition, as they stand in the frame.
            size = 2 + ((data[position + 6] << 8) | data[position + 7]) + 4
            set_start = position + 6 + size + 4
            if (
                data[position + 4] | data[position + 5] | (data[position + 6] & 0x80)
                or set_start > frame_end
            ):
                break
            set_size = read_i32(data + set_start - 4)
            if set_size < 0 or set_size > frame_end - set_start:
                break
            message_count = 0
            at = set_start
            while set_start + set_size - at >= LENGTH_BYTES:
                if (
                    look(data, at, set_start + set_size, &entry) != GOOD
                    or entry.attributes & CODEC_MASK
                    or entry.end - entry.payload_start > message_bytes_max
                ):
                    break
                message_count += 1
                at = entry.end
            if at != set_start + set_size:
                break
            if (
                frame_count
                and size == route_size
                and set_size <= MERGED_SET_BYTES_MAX
                and not memcmp(data + position + 6, route_start, size)
            ):
                memmove(data + run_end, data + set_start, set_size)
                run_end += set_size
                run_messages += message_count
                frame_count += 1
            else:
                if frame_count:
                    runs.append(
                        (
                            PyBytes_FromStringAndSize(<const char *>route_start, route_size),
                            run_start,
                            run_end,
                            run_messages,
                            frame_count,
                        )
                    )
                route_start = data + position + 6
                route_size = size
                run_start = set_start
                run_end = set_start + set_size
                run_messages = message_count
                frame_count = 1
            position = frame_end
        if frame_count:
            runs.append(
                (
                    PyBytes_FromStringAndSize(<const char *>route_start, route_size),
                    run_start,
                    run_end,
                    run_messages,
                    frame_count,
                )
            )
    finally:
        PyBuffer_Release(&view)
    return position, runs


def check_entries(object buffer):
    """Find how far the top-level entries are good (see `message_set.check_entries`)."""
    cdef Py_buffer view
    cdef Look entry
    cdef Fault fault = GOOD
    cdef Py_ssize_t position = 0, total, entry_count = 0
    cdef const unsigned char *data
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const unsigned char *>view.buf
        total = view.len
        # Recovery reads gigabytes from a thread; nothing here needs the interpreter.
        with nogil:
            while total - position >= LENGTH_BYTES:
                fault = look(data, position, total, &entry)
                if fault != GOOD:
                    break
                entry_count += 1
                position = entry.end
    finally:
        PyBuffer_Release(&view)
    if fault == BAD:
        return Ending(position, entry_count, _hot_pure.fault_text(buffer, position))
    return Ending(position, entry_count, "cut" if position < total else "")


# Consume ---------------------------------------------------------------------------------------


def split(object buffer):
    """Length of the complete entries (see `message_set.split`)."""
    cdef Py_buffer view
    cdef Py_ssize_t position = 0, total, length
    cdef const unsigned char *data
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const unsigned char *>view.buf
        total = view.len
        while total - position >= LENGTH_BYTES:
            length = read_i32(data + position)
            if length < MAGIC0_OVERHEAD_BYTES:
                if position:
                    return position
                raise InvalidMessage(f"length {length} of entry at 0", 0)
            if length > total - position - LENGTH_BYTES:
                break
            position += LENGTH_BYTES + length
    finally:
        PyBuffer_Release(&view)
    if total and not position:
        raise _hot_pure.cut_first(buffer)
    return position


cdef inline int next_entry(
    object buffer, const unsigned char *data, Py_ssize_t position, Py_ssize_t total, Look *entry
) except -1:
    """1: `entry` is the one at `position`. 0: the set ends here. Raises the rest."""
    cdef Fault fault
    if total - position < LENGTH_BYTES:
        if total and not position:
            raise _hot_pure.cut_first(buffer)
        return 0
    fault = look(data, position, total, entry)
    if fault == GOOD:
        return 1
    if fault == CUT:
        if not position:
            raise _hot_pure.cut_first(buffer)
        return 0
    raise fault_at(buffer, position)


cdef list opened(
    const unsigned char *data,
    Py_ssize_t position,
    const Look *entry,
    object limit,
    int64_t *unpacked_bytes,
):
    """The payloads in the wrapper `entry`, however deep; adds what was unpacked for them."""
    cdef list found = []
    cdef object budget = DecompressionBudget(limit)
    try:
        collect(entry.attributes & CODEC_MASK, copied(data, entry), budget, 1, found)
    except InvalidMessage as error:
        error.position = position
        raise
    unpacked_bytes[0] += <int64_t>(limit - budget.bytes_left)
    return found


cdef int collect(object codec, bytes payload, object budget, int depth, list found) except -1:
    cdef bytes unpacked = budget.decompress(codec, payload, depth)
    cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(unpacked)
    cdef Py_ssize_t position = 0, total = len(unpacked)
    cdef Look entry
    cdef Fault fault
    while total - position >= LENGTH_BYTES:
        fault = look(data, position, total, &entry)
        if fault != GOOD:
            if fault == CUT and position:
                break
            raise fault_at(unpacked, position)
        if entry.attributes & CODEC_MASK:
            collect(entry.attributes & CODEC_MASK, copied(data, &entry), budget, depth + 1, found)
        else:
            found.append(copied(data, &entry))
        position = entry.end
    return 0


def messages(
    object buffer, int64_t offset, object wrapper_bytes_max=DECOMPRESSED_BYTES_MAX
):
    """Deep (payload, next offset) pairs (see `message_set.messages`)."""
    return take_messages(buffer, offset, wrapper_bytes_max, NO_LIMIT)[0]


def payloads(object buffer, object wrapper_bytes_max=DECOMPRESSED_BYTES_MAX):
    """Deep payloads only (see `message_set.payloads`)."""
    return take_payloads(buffer, wrapper_bytes_max, NO_LIMIT)[0]


def take_messages(
    object buffer, int64_t offset, object wrapper_bytes_max, int64_t unpacked_bytes_max
):
    """`messages` up to a budget, and where it ends (see `message_set.take_messages`)."""
    cdef Py_buffer view
    cdef Look entry
    cdef Py_ssize_t position = 0
    cdef int64_t unpacked_bytes = 0
    cdef const unsigned char *data
    cdef list found = []
    cdef list inner
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const unsigned char *>view.buf
        while next_entry(buffer, data, position, view.len, &entry):
            if entry.attributes & CODEC_MASK:
                if unpacked_bytes >= unpacked_bytes_max:
                    break
                inner = opened(data, position, &entry, wrapper_bytes_max, &unpacked_bytes)
                if inner:
                    last = inner.pop()
                    start = offset + position
                    found.extend([(payload, start) for payload in inner])
                    found.append((last, offset + entry.end))
            else:
                found.append((copied(data, &entry), offset + entry.end))
            position = entry.end
    finally:
        PyBuffer_Release(&view)
    return found, position


def take_payloads(object buffer, object wrapper_bytes_max, int64_t unpacked_bytes_max):
    """`payloads` up to a budget, and where it ends (see `message_set.take_payloads`)."""
    cdef Py_buffer view
    cdef Look entry
    cdef Py_ssize_t position = 0
    cdef int64_t unpacked_bytes = 0
    cdef const unsigned char *data
    cdef list found = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const unsigned char *>view.buf
        while next_entry(buffer, data, position, view.len, &entry):
            if entry.attributes & CODEC_MASK:
                if unpacked_bytes >= unpacked_bytes_max:
                    break
                found.extend(opened(data, position, &entry, wrapper_bytes_max, &unpacked_bytes))
            else:
                found.append(copied(data, &entry))
            position = entry.end
    finally:
        PyBuffer_Release(&view)
    return found, position


@cython.final
@cython.freelist(4096)
cdef class ConsumedMessage:
    """A message as handed to the application (see `_hot_pure.ConsumedMessage`)."""

    __match_args__ = ("payload", "topic", "broker_id", "partition", "next_offset")

    cdef readonly bytes payload
    cdef readonly str topic
    cdef readonly int broker_id
    cdef readonly int partition
    cdef readonly int64_t next_offset

    def __init__(
        self, bytes payload, str topic, int broker_id, int partition, int64_t next_offset
    ):
        self.payload = payload
        self.topic = topic
        self.broker_id = broker_id
        self.partition = partition
        self.next_offset = next_offset

    cdef tuple fields(self):
        return self.payload, self.topic, self.broker_id, self.partition, self.next_offset

    def __eq__(self, other):
        if not isinstance(other, ConsumedMessage):
            return NotImplemented
        return self.fields() == (<ConsumedMessage>other).fields()

    def __hash__(self):
        return hash(self.fields())

    def __repr__(self):
        return _hot_pure.consumed_text(self)


cdef inline ConsumedMessage consumed_message(
    bytes payload, str topic, int broker_id, int partition, int64_t next_offset
):
    cdef ConsumedMessage message = ConsumedMessage.__new__(ConsumedMessage)
    message.payload = payload
    message.topic = topic
    message.broker_id = broker_id
    message.partition = partition
    message.next_offset = next_offset
    return message


def consumed(
    object buffer,
    int64_t offset,
    str topic,
    int broker_id,
    int partition,
    *,
    object wrapper_bytes_max=DECOMPRESSED_BYTES_MAX,
):
    """`messages` as objects (see `message_set.consumed`)."""
    return take_consumed(
        buffer, offset, topic, broker_id, partition, wrapper_bytes_max, NO_LIMIT
    )[0]


def take_consumed(
    object buffer,
    int64_t offset,
    str topic,
    int broker_id,
    int partition,
    object wrapper_bytes_max,
    int64_t unpacked_bytes_max,
):
    """`take_messages` as objects (see `message_set.take_consumed`)."""
    cdef Py_buffer view
    cdef Look entry
    cdef Py_ssize_t position = 0, index, count
    cdef int64_t next_offset, unpacked_bytes = 0
    cdef const unsigned char *data
    cdef list found = []
    cdef list inner
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <const unsigned char *>view.buf
        while next_entry(buffer, data, position, view.len, &entry):
            if entry.attributes & CODEC_MASK:
                if unpacked_bytes >= unpacked_bytes_max:
                    break
                inner = opened(data, position, &entry, wrapper_bytes_max, &unpacked_bytes)
                count = len(inner)
                for index in range(count):
                    next_offset = offset + (entry.end if index == count - 1 else position)
                    found.append(
                        consumed_message(inner[index], topic, broker_id, partition, next_offset)
                    )
            else:
                found.append(
                    consumed_message(
                        copied(data, &entry), topic, broker_id, partition, offset + entry.end
                    )
                )
            position = entry.end
    finally:
        PyBuffer_Release(&view)
    return found, position


@cython.final
cdef class PlainMessages:
    """Iterates the messages of plain entries that were checked, each made when it is asked for."""

    cdef Py_buffer view
    cdef bint is_held
    cdef Py_ssize_t position, end
    cdef int64_t offset
    cdef str topic
    cdef int broker_id, partition

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)

    def __iter__(self):
        return self

    def __next__(self):
        cdef const unsigned char *data = <const unsigned char *>self.view.buf
        cdef Look entry
        if self.position >= self.end:
            raise StopIteration
        outline(data, self.position, &entry)
        if entry.end > self.end or entry.payload_start > entry.end:
            raise RuntimeError("the bytes were changed while their messages were iterated")
        self.position = entry.end
        return consumed_message(
            copied(data, &entry),
            self.topic,
            self.broker_id,
            self.partition,
            self.offset + entry.end,
        )


def take_iterator(
    object buffer,
    int64_t offset,
    str topic,
    int broker_id,
    int partition,
    object wrapper_bytes_max,
    int64_t unpacked_bytes_max,
):
    """`take_consumed` as an iterator (see `message_set.take_iterator`)."""
    cdef PlainMessages found = PlainMessages.__new__(PlainMessages)
    cdef Walk walk
    cdef Stop stop
    walk.position = walk.entry_count = walk.largest = 0
    PyObject_GetBuffer(buffer, &found.view, PyBUF_SIMPLE)
    found.is_held = True
    stop = walked(<const unsigned char *>found.view.buf, found.view.len, PAYLOAD_MAX, &walk)
    if stop == AT_BAD:
        raise fault_at(buffer, walk.position)
    if stop == AT_WRAPPER:
        walk.position = walk.entry.payload_start - LENGTH_BYTES - MAGIC1_OVERHEAD_BYTES
        if not walk.position:
            found_messages, end = take_consumed(
                buffer, offset, topic, broker_id, partition, wrapper_bytes_max, unpacked_bytes_max
            )
            return iter(found_messages), end
    elif found.view.len and not walk.position:
        raise _hot_pure.cut_first(buffer)
    found.end = walk.position
    found.offset = offset
    found.topic = topic
    found.broker_id = broker_id
    found.partition = partition
    return found, walk.position


# Make ------------------------------------------------------------------------------------------


cdef object only_bytes(object payloads):
    """`payloads` as a list or tuple of bytes objects, itself where it already is one."""
    cdef object given = payloads if isinstance(payloads, (list, tuple)) else list(payloads)
    for payload in given:
        if not PyBytes_CheckExact(payload):
            return [bytes(memoryview(payload)) for payload in given]
    return given


cdef Py_ssize_t entries_size(object given, int overhead) except -1:
    cdef Py_ssize_t total = 0, size
    cdef bytes payload
    for payload in given:
        size = len(payload)
        if size > PAYLOAD_MAX:
            raise MessageSizeTooLarge(f"payload of {size} bytes does not fit an entry")
        total += LENGTH_BYTES + overhead + size
    return total


cdef int write_entries(unsigned char *at, object given, int magic) except -1:
    cdef bytes payload
    cdef const unsigned char *source
    cdef Py_ssize_t size
    for payload in given:
        size = len(payload)
        source = <const unsigned char *>PyBytes_AS_STRING(payload)
        at[4] = magic
        if magic:
            write_i32(at, <uint32_t>(size + MAGIC1_OVERHEAD_BYTES))
            at[5] = 0
            at += LENGTH_BYTES + MAGIC1_OVERHEAD_BYTES
        else:
            write_i32(at, <uint32_t>(size + MAGIC0_OVERHEAD_BYTES))
            at += LENGTH_BYTES + MAGIC0_OVERHEAD_BYTES
        write_i32(at - 4, kafka2011_crc32(source, size))
        memcpy(at, source, size)
        at += size
    return 0


def encode(object payloads, int magic=1):
    """Plain entries (see `message_set.encode`)."""
    if magic != 0 and magic != 1:
        raise LocalProtocolError(f"no message format has the magic {magic}")
    cdef object given = only_bytes(payloads)
    cdef Py_ssize_t size = entries_size(
        given, MAGIC1_OVERHEAD_BYTES if magic else MAGIC0_OVERHEAD_BYTES
    )
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size)
    write_entries(<unsigned char *>PyBytes_AS_STRING(made), given, magic)
    return made


# For the tests ---------------------------------------------------------------------------------


def crc32(object data, Py_ssize_t start=0):
    """The CRC of `data[start:]` as the loops compute it."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return kafka2011_crc32(<const unsigned char *>view.buf + start, view.len - start)
    finally:
        PyBuffer_Release(&view)


def crc32_by_tables(object data, Py_ssize_t start=0):
    """The same by the tables alone, as on machines that cannot fold."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return kafka2011_crc32_tables_only(
            <const unsigned char *>view.buf + start, view.len - start
        )
    finally:
        PyBuffer_Release(&view)
