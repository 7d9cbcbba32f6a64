"""Lag in time: the age of the first unread message of a partition.

0.7 stores neither the time of a message nor an index by time. The sources, in this order:

    header    the message at the committed offset has its time in it, as events do: exact
    segment   brokers know the last write of each segment (the Offsets request): the message is
              at least as old as the last write of its own segment, at most as old as that of the
              segment before; with one segment there is no upper bound
"""

from collections.abc import Callable
from typing import NamedTuple

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.counting.partition_counts import FUTURE_MS_MAX
from kafka2011.consumer.fetched_set import larger_size
from kafka2011.consumer.simple import LATEST, SimpleConsumer
from kafka2011.events.origin import Origin
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import KafkaError, MessageLargerThanFetchSize, OffsetOutOfRange

FETCH_BYTES = 65536
FETCH_BYTES_MAX = 1 << 24
SEGMENTS_MAX = 10_000  # requested; further ones are not distinguished
PRECISION_MS = 1000
HISTORY_MS = 50 * 365 * 86_400_000  # the oldest time that is searched for
# A time outside this range is from a wrong clock, or from no header.
TIME_MIN_MS = 946_684_800_000  # 2000


class LagTime(NamedTuple):
    """Ages in ms; `at_most_ms` None: no bound. If unknown, `source` is "" and `reason` says why."""

    at_least_ms: int | None
    at_most_ms: int | None
    source: str
    reason: str = ""


NOTHING_LEFT = LagTime(0, 0, "end")


def lag_time(
    client: SimpleConsumer,
    name: TopicPartition,
    offset: int | None,
    end: int | None,
    now_ms: int,
    *,
    origin: Origin | None = None,
) -> LagTime:
    """The age of the message at `offset`.

    `origin` reads the time of the topic's events; None: it has no events. A broker's error is a
    reason in the result, never an exception.
    """
    if offset is None or end is None:
        return LagTime(None, None, "", "no offset or no log end is known")
    if offset > end:
        return LagTime(None, None, "", "the offset is past the end of the log")
    if offset == end:
        return NOTHING_LEFT
    try:
        if origin is not None:
            time_ms = _header_time(client, name, offset, origin)
            if time_ms is not None and TIME_MIN_MS <= time_ms <= now_ms + FUTURE_MS_MAX:
                age_ms = max(0, now_ms - time_ms)
                return LagTime(age_ms, age_ms, "header")
        return _by_segments(client, name, offset, now_ms)
    except OffsetOutOfRange:
        return LagTime(None, None, "", "the offset is no longer in the log")
    except KafkaError as error:
        return LagTime(None, None, "", str(error))


def _header_time(
    client: SimpleConsumer, name: TopicPartition, offset: int, origin: Origin
) -> int | None:
    size = FETCH_BYTES
    while True:
        data = client.fetch(name.topic, name.partition, offset, size).data
        try:
            # The first entry only: the rest of a fetch may be cut.
            first = next(message_set.entries(data), None)
            valid = message_set.split(data) if first is None else first.next_offset
            messages = message_set.messages(data[:valid], 0)
            return origin.time_ms(messages[0][0]) if messages else None
        except MessageLargerThanFetchSize as error:
            size = larger_size(size, error, FETCH_BYTES_MAX)
            if not size:
                return None


def _by_segments(client: SimpleConsumer, name: TopicPartition, offset: int, now_ms: int) -> LagTime:
    def newest_before(time_ms: int) -> int | None:
        found = client.get_offsets_before(name.topic, name.partition, time_ms, 1)
        return found[0] if found else None

    answer = client.get_offsets_before(name.topic, name.partition, LATEST, SEGMENTS_MAX)
    starts = sorted(start for start in answer if start <= offset)
    if not starts:
        raise OffsetOutOfRange(f"{name} begins after {offset}")
    written_ms = last_write(newest_before, starts[-1], now_ms)
    before_ms = last_write(newest_before, starts[-2], now_ms) if len(starts) > 1 else None
    return LagTime(
        None if written_ms is None else max(0, now_ms - written_ms),
        None if before_ms is None else max(0, now_ms - before_ms),
        "segment",
        "" if before_ms is not None else "one segment: no upper bound",
    )


def last_write(
    newest_before: Callable[[int], int | None], segment_start: int, now_ms: int
) -> int | None:
    """The time of a segment's last write, to a second or 1 % of its age (ms since the epoch).

    `newest_before(time)` is the broker's answer: start of the newest segment last written at or
    before that time. None when there is no such time up to now.
    """

    def is_written_by(time_ms: int) -> bool:
        answer = newest_before(time_ms)
        return answer is not None and answer >= segment_start

    if not is_written_by(now_ms):
        return None
    age_ms = PRECISION_MS
    while is_written_by(now_ms - age_ms):
        age_ms *= 2
        if age_ms > HISTORY_MS:
            return now_ms - age_ms // 2
    low_ms, high_ms = now_ms - age_ms, now_ms - (age_ms // 2 if age_ms > PRECISION_MS else 0)
    while high_ms - low_ms > max(PRECISION_MS, (now_ms - high_ms) // 100):
        middle_ms = (low_ms + high_ms) // 2
        if is_written_by(middle_ms):
            high_ms = middle_ms
        else:
            low_ms = middle_ms
    return high_ms
