# cython: language_level=3, boundscheck=False, wraparound=False
"""The asynchronous producer's per-message steps, compiled; `_intake_pure` is the twin.

No lock: nothing here runs Python code or releases the interpreter lock between reading the list's
length and changing the list. Allocations, which may run the garbage collector and so a finalizer,
come before that.
"""

COMPILED = True


cdef class Intake:
    """The bounded list between callers of `send` and the sender thread; see `intake`."""

    cdef Py_ssize_t size, batch_size
    cdef object on_batch, on_full
    cdef list events

    def __init__(self, Py_ssize_t size, Py_ssize_t batch_size, object on_batch, object on_full):
        self.size = size
        self.batch_size = batch_size
        self.on_batch = on_batch
        self.on_full = on_full
        self.events = []

    def put_one(self, object topic, object partition, object payload, object key=None):
        cdef tuple event = (topic, partition, payload, key)
        cdef Py_ssize_t length = len(self.events) + 1
        if length > self.size:
            self.on_full(topic, partition, payload, key)
            return
        self.events.append(event)
        if length == self.batch_size:
            self.on_batch()

    def offer(self, object event):
        if len(self.events) >= self.size:
            return False
        self.events.append(event)
        return True

    def take(self):
        cdef list none = []
        cdef list events = self.events
        self.events = none
        return events

    def waiting(self):
        return self.events.copy()

    def close(self):
        self.size = 0

    def __len__(self):
        return len(self.events)


def group(object messages):
    cdef dict groups = {}
    cdef object last_topic = None
    cdef object last_partition = None
    cdef list found = []
    cdef object message
    cdef object topic, partition
    for message in messages:
        topic = message[0]
        partition = message[1]
        if topic is not last_topic or partition is not last_partition:
            found = groups.setdefault((topic, partition), [])
            last_topic = topic
            last_partition = partition
        found.append(message[2])
    return groups
