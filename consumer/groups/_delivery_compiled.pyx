# cython: language_level=3, boundscheck=False, wraparound=False
"""The delivery of messages under their grants, compiled; `_delivery_pure` is the twin."""

cimport cython

COMPILED = True


cdef class GrantFields:
    """What is read and written for each message; see `delivery.Grant`."""

    cdef public bint open
    cdef public object last
    cdef public object done


@cython.final
cdef class Delivery:
    """The iterator that `deliver` returns. After an error of `next_batch` it can be asked again;
    the twin's generator has ended then, and the stream makes a new one of either."""

    cdef object next_batch, await_grant
    cdef tuple batch
    cdef object messages
    cdef GrantFields grant
    cdef object out  # the application has it and has not asked for the next one

    def __init__(self, next_batch, await_grant):
        self.next_batch = next_batch
        self.await_grant = await_grant

    def __iter__(self):
        return self

    def __next__(self):
        cdef object message
        if self.out is not None:
            self.grant.done = self.out
            self.out = None
        while True:
            if self.messages is not None:
                message = next(self.messages, None)
                if message is not None and (self.grant.open or self.await_grant(self.grant)):
                    self.grant.last = message
                    self.out = message
                    return message
                self.messages = None
            self.batch = self.next_batch(self.batch)
            if self.batch is None:
                raise StopIteration
            self.messages, self.grant = self.batch


def deliver(next_batch, await_grant):
    """See `delivery`."""
    return Delivery(next_batch, await_grant)
