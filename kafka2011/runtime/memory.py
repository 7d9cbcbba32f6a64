"""Keeps a process with many threads small."""

import ctypes

M_TRIM_THRESHOLD, M_ARENA_MAX = -1, -8  # names of glibc's malloc.h
TRIM_BYTES = 128 * 1024


def one_heap() -> None:
    """Make glibc use one heap for all threads: one per thread would hold a few MB each for good.

    Call it before threads start. Does nothing with another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
