"""Counts by key over the last minutes. Pure: the time comes with each call.

Time is cut into buckets; shown are the whole buckets from `start_ms` on and the current one. An
event belongs to the bucket of its own time, whenever it is read, so the counts are those of a
recount of the log from `start_ms` on, in whatever order the partitions were read.
"""

import heapq
from collections import Counter
from collections.abc import Mapping
from typing import Any


class SlidingCounts:
    """Counts of the last `window_ms`, in buckets of `bucket_ms`.

    `keys_max` bounds the distinct keys of one bucket; events of further keys count in the total
    only, and `is_exact` is False as long as there are any.
    """

    def __init__(self, window_ms: int, bucket_ms: int, keys_max: int) -> None:
        self._window_ms = window_ms
        self._bucket_ms = bucket_ms
        self._keys_max = keys_max
        self._buckets: dict[int, Counter[str]] = {}
        self._left_out: Counter[int] = Counter()
        self._counts: Counter[str] = Counter()
        self._total = 0

    def start_ms(self, now_ms: int) -> int:
        """The first time that counts at `now_ms`."""
        return ((now_ms - self._window_ms) // self._bucket_ms + 1) * self._bucket_ms

    def add(self, key: str, time_ms: int, now_ms: int, number: int = 1) -> bool:
        """Count an event of `time_ms`; False when it is too old to be shown. One of the future
        counts as of now."""
        bucket = min(time_ms, now_ms) // self._bucket_ms * self._bucket_ms
        if bucket < self.start_ms(now_ms):
            return False
        counts = self._buckets.get(bucket)
        if counts is None:
            self._expire(now_ms)
            counts = self._buckets[bucket] = Counter()
        self._total += number
        if key not in counts and len(counts) >= self._keys_max:
            self._left_out[bucket] += number
            return True
        counts[key] += number
        self._counts[key] += number
        return True

    def count(self, key: str, now_ms: int) -> int:
        self._expire(now_ms)
        return self._counts.get(key, 0)

    def counts(self, now_ms: int) -> Mapping[str, int]:
        """All counts above 0; valid until the next call."""
        self._expire(now_ms)
        return self._counts

    def total(self, now_ms: int) -> int:
        """The count of all keys, including those left out."""
        self._expire(now_ms)
        return self._total

    def top(self, number: int, now_ms: int) -> list[tuple[str, int]]:
        """The keys with the highest counts, highest first; equal ones by name."""
        self._expire(now_ms)
        return heapq.nsmallest(number, self._counts.items(), key=lambda item: (-item[1], item[0]))

    def is_exact(self, now_ms: int) -> bool:
        self._expire(now_ms)
        return not self._left_out

    def _expire(self, now_ms: int) -> None:
        start = self.start_ms(now_ms)
        for bucket in [bucket for bucket in self._buckets if bucket < start]:
            counts = self._buckets.pop(bucket)
            self._total -= counts.total() + self._left_out.pop(bucket, 0)
            for key, number in counts.items():
                left = self._counts[key] - number
                if left:
                    self._counts[key] = left
                else:
                    del self._counts[key]

    def state(self) -> Any:
        """The counts for `restore`, as JSON."""
        return [
            [bucket, self._left_out.get(bucket, 0), counts]
            for bucket, counts in self._buckets.items()
        ]

    def restore(self, state: Any) -> None:
        """Take over what `state` returned."""
        for bucket, left_out, counts in state:
            self._buckets[bucket] = Counter(counts)
            if left_out:
                self._left_out[bucket] = left_out
            self._total += left_out + sum(counts.values())
            self._counts.update(counts)
