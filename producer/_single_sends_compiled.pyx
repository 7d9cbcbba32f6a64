# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Single messages of a synchronous producer, compiled; `_single_sends_pure` is the twin.

While the connection is lent (`left` is above 0) frames go to its socket from here; whatever else is
done with the connection takes it back first.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from kafka2011.producer import _single_sends_pure
from kafka2011.protocol._entry cimport (
    MAGIC1_OVERHEAD_BYTES,
    kafka2011_crc32,
    kafka2011_crc32_start,
    write_i32,
)
from kafka2011.protocol.requests import ANY_PARTITION, produce_head

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void *data, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

kafka2011_crc32_start()

# The layout is that of `protocol.message` and `protocol.requests`.
cdef enum:
    SIZE_BYTES = 4
    ENTRY_HEAD_BYTES = 10
    # A larger payload costs so much that the twin's way does not matter.
    PAYLOAD_BYTES_MAX = 16384


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef class SingleSends:
    """See `single_sends`."""

    cdef public bint is_closed
    cdef readonly Py_ssize_t sends, set_bytes
    cdef object connection, acquire, release, slow, slow_put_one
    cdef str topic
    # The frame: head, which ends with the set's size, and the entry.
    cdef unsigned char *frame
    cdef Py_ssize_t head_bytes
    # The loan.
    cdef int fd
    cdef Py_ssize_t left, lent_sends, lent_bytes
    cdef int64_t last_ns, idle_ns, until_ns

    def __cinit__(self, object connection, object lock, bytes name, object reconnect):
        cdef bytes head = produce_head(name, ANY_PARTITION, 0)
        self.head_bytes = len(head)
        self.frame = <unsigned char *>malloc(
            self.head_bytes + ENTRY_HEAD_BYTES + PAYLOAD_BYTES_MAX
        )
        if self.frame == NULL:
            raise MemoryError
        memcpy(self.frame, PyBytes_AS_STRING(head), self.head_bytes)
        self.frame[self.head_bytes + 4] = 1
        self.frame[self.head_bytes + 5] = 0
        self.connection = connection
        self.acquire, self.release = lock.acquire, lock.release
        self.topic = ""
        self.slow = _single_sends_pure.SingleSends(connection, lock, name, reconnect)
        self.slow_put_one = self.slow.put_one

    def __dealloc__(self):
        free(self.frame)

    def put_one(self, str topic, object partition, bytes payload, object key=None):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(payload)
        self.acquire()
        try:
            if not self.put_quickly(payload, size):
                self.put_slowly(topic, partition, payload)
            self.sends += 1
            self.set_bytes += ENTRY_HEAD_BYTES + size
        finally:
            self.release()

    cdef bint put_quickly(self, bytes payload, Py_ssize_t size) except -1:
        cdef Py_ssize_t set_bytes = ENTRY_HEAD_BYTES + size
        cdef Py_ssize_t frame_bytes = self.head_bytes + set_bytes
        cdef unsigned char *entry = self.frame + self.head_bytes
        cdef int64_t now_ns
        cdef Py_ssize_t sent
        if self.left <= 0 or size > PAYLOAD_BYTES_MAX:
            return False
        now_ns = monotonic_ns()
        if now_ns - self.last_ns > self.idle_ns or now_ns >= self.until_ns:
            return False
        write_i32(self.frame, <uint32_t>(frame_bytes - SIZE_BYTES))
        write_i32(entry - SIZE_BYTES, <uint32_t>set_bytes)
        write_i32(entry, <uint32_t>(size + MAGIC1_OVERHEAD_BYTES))
        write_i32(
            entry + 6, kafka2011_crc32(<const unsigned char *>PyBytes_AS_STRING(payload), size)
        )
        memcpy(entry + ENTRY_HEAD_BYTES, PyBytes_AS_STRING(payload), size)
        self.last_ns = now_ns
        self.left -= 1
        self.lent_sends += 1
        self.lent_bytes += set_bytes
        # It does not wait, so the interpreter's lock can be kept.
        sent = send(self.fd, self.frame, frame_bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent != frame_bytes:
            self.complete(frame_bytes, sent, errno)
        return True

    cdef int put_slowly(self, str topic, object partition, bytes payload) except -1:
        self.slow.is_closed = self.is_closed
        self.slow_put_one(topic, partition, payload)
        self.topic = topic
        loan = self.connection.lend(self)
        if loan is not None:
            self.fd, self.last_ns, self.idle_ns, self.until_ns, self.left = loan
        return 0

    cdef int complete(self, Py_ssize_t frame_bytes, Py_ssize_t sent, int error_number) except -1:
        cdef bytes rest = b""
        if sent >= 0 or error_number in (EAGAIN, EINTR):
            error_number = 0
            sent = max(sent, 0)
            rest = PyBytes_FromStringAndSize(<char *>self.frame + sent, frame_bytes - sent)
        self.connection.send_rest(rest, error_number)
        return 0

    def settle(self):
        """End the loan; what was sent in it (see `connection.Borrower`)."""
        cdef Py_ssize_t sends = self.lent_sends, set_bytes = self.lent_bytes
        self.left = self.lent_sends = self.lent_bytes = 0
        return self.topic, sends, set_bytes, self.last_ns
