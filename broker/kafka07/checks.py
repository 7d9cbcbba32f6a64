"""Validates the sets of produce requests: small ones on the loop, the others in a thread.

What a set costs shows only while it is unpacked: 16 KB may become 16 MB. So a check on the loop
has a ceiling for what it unpacks, and all of them together a small share of the loop's time; a
request that needs more is checked beside the loop, with those that wait behind it on its
connection. Nothing is appended here: the handlers append what is found, in order.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka2011.broker.config import BrokerConfig
from kafka2011.protocol import errors as wire_errors
from kafka2011.protocol import message_set as message_sets
from kafka2011.protocol import requests
from kafka2011.protocol.compression import DecompressionBudget
from kafka2011.protocol.framing import FRAME_SIZE, FRAME_SIZE_BYTES
from kafka2011.protocol.layout import REQUEST_ID_BYTES
from kafka2011.protocol.requests import MULTI_PRODUCE, PRODUCE, request_id_of

# A request larger than this is not looked at on the loop: 1 MiB of small messages is about 2 ms.
LOOP_REQUEST_BYTES_MAX = 1024 * 1024
# For a compressed set on the loop: its packed bytes, which bound the number of empty gzip members,
# and what it unpacks to, nested sets included.
LOOP_PACKED_BYTES_MAX = 8 * 1024
LOOP_UNPACKED_BYTES_MAX = 64 * 1024
# The share of the loop's time that unpacking may have, over all clients, and how much at once.
LOOP_SHARE = 0.1
LOOP_BURST_S = 0.002
# A job ends after the request with which it reaches this many bytes or requests: other connections
# wait for their turn, and the loop for the interpreter's lock.
JOB_BYTES_MAX = 1024 * 1024
JOB_REQUESTS_MAX = 64


class RequestRefused(Exception):
    """The request is refused: close the connection. `reason` is the metric's label, the text is
    for the log."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class TooMuchForTheLoop(Exception):
    """The check of a request would hold the loop up: have a `CheckJob` do it."""


class Fault(NamedTuple):
    """Why a set is not appended. Not the error itself: it would keep unpacked bytes in memory."""

    reason: str  # a metric's label
    detail: str
    closes: bool  # the connection; else only this set is left out


class CheckedPart(NamedTuple):
    """One part of a produce request."""

    route: bytes
    message_set: memoryview  # whole entries
    message_count: int
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a produce request may hold."""

    message_bytes_max: int
    parts_max: int
    decompressed_bytes_max: int
    decompression_depth_max: int

    @classmethod
    def of(cls, config: BrokerConfig) -> "Limits":
        return cls(
            config.message_bytes_max,
            config.parts_max,
            config.decompressed_bytes_max,
            config.decompression_depth_max,
        )

    def new_budget(self) -> DecompressionBudget:
        return DecompressionBudget(self.decompressed_bytes_max, self.decompression_depth_max)


def check_part_count(parts: Sequence[object], parts_max: int) -> None:
    """Raise RequestRefused for too many."""
    if len(parts) > parts_max:
        raise RequestRefused("too-many-parts", f"{len(parts)} parts, the limit is {parts_max}")


def checked_parts(
    body: memoryview, limits: Limits, budget: DecompressionBudget
) -> list[CheckedPart]:
    """The parts of a Produce or MultiProduce, up to and including the first that is invalid.

    Raises RequestRefused, and what the budget raises besides the protocol's errors.
    """
    try:
        parts = requests.produce_parts(body, request_id_of(body))
    except wire_errors.KafkaError as error:
        raise RequestRefused("malformed-request", str(error)) from None
    check_part_count(parts, limits.parts_max)
    checked = []
    for route, message_set in parts:
        try:
            found = message_sets.scan(message_set, limits.message_bytes_max, budget=budget)
        except wire_errors.MessageSizeTooLarge as error:
            fault = Fault("message-too-large", str(error), closes=False)
            checked.append(CheckedPart(route, message_set, 0, fault))
        except wire_errors.InvalidMessage as error:
            fault = Fault("invalid-message", str(error), closes=True)
            checked.append(CheckedPart(route, message_set, 0, fault))
            break
        else:
            whole = message_set[: found.valid_bytes]
            checked.append(CheckedPart(route, whole, found.message_count, None))
    return checked


class LoopShare:
    """How much of the loop's time may be spent: a burst, refilled at a share of the time passed.

    Spending is never refused, so one piece of work may overdraw it; the next then waits.
    """

    def __init__(self, share: float, burst_s: float, clock: Callable[[], float]) -> None:
        self._share = share
        self._burst_s = burst_s
        self._clock = clock
        self._left_s = burst_s
        self._refilled_s = clock()

    def is_left(self) -> bool:
        now_s = self._clock()
        refill_s = self._share * (now_s - self._refilled_s)
        self._left_s = min(self._burst_s, self._left_s + refill_s)
        self._refilled_s = now_s
        return self._left_s > 0

    def spend(self, seconds: float) -> None:
        self._left_s -= seconds


class LoopBudget(DecompressionBudget):
    """The budget of one request on the loop: raises TooMuchForTheLoop where a thread is needed.

    If the request's own limits are exceeded first, their error is raised instead.
    """

    __slots__ = ("_clock", "_loop_bytes_left", "_share")

    def __init__(self, limits: Limits, share: LoopShare, clock: Callable[[], float]) -> None:
        super().__init__(limits.decompressed_bytes_max, limits.decompression_depth_max)
        self._loop_bytes_left = LOOP_UNPACKED_BYTES_MAX
        self._share = share
        self._clock = clock

    def decompress(self, codec: int, data: bytes | memoryview, depth: int) -> bytes:
        if len(data) > LOOP_PACKED_BYTES_MAX or not self._share.is_left():
            raise TooMuchForTheLoop
        began_s = self._clock()
        allowed, self.bytes_left = self.bytes_left, min(self.bytes_left, self._loop_bytes_left)
        is_whole = self.bytes_left == allowed
        try:
            unpacked = super().decompress(codec, data, depth)
        except wire_errors.DecompressedSizeTooLarge:
            if is_whole:
                raise
            raise TooMuchForTheLoop from None
        finally:
            # The entries in it are walked as well, which takes about as long.
            self._share.spend(2 * (self._clock() - began_s))
        self._loop_bytes_left -= len(unpacked)
        self.bytes_left = allowed - len(unpacked)
        return unpacked


class LoopChecks:
    """Checks on the loop, within its share. One for all connections."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.perf_counter) -> None:
        self._limits = limits
        self._clock = clock
        self._share = LoopShare(LOOP_SHARE, LOOP_BURST_S, clock)
        self._budget = self._new_budget()

    def _new_budget(self) -> LoopBudget:
        return LoopBudget(self._limits, self._share, self._clock)

    def check(self, body: memoryview) -> list[CheckedPart]:
        """As `checked_parts`. Raises TooMuchForTheLoop as well."""
        if len(body) > LOOP_REQUEST_BYTES_MAX:
            raise TooMuchForTheLoop
        try:
            return checked_parts(body, self._limits, self._budget)
        finally:
            if self._budget.bytes_left != self._limits.decompressed_bytes_max:
                self._budget = self._new_budget()


class CheckJob:
    """Checks the produce requests from `start` on, one after the other; `run` in a thread.

    `found` has the parts of each, or why it is refused. It stops before a request that is
    incomplete or not a produce, after one that closes the connection, and after enough for a job.
    """

    def __init__(self, buffer: memoryview, start: int, end: int, limits: Limits) -> None:
        self.error: OSError | None = None
        self.found: list[list[CheckedPart] | RequestRefused] = []
        self._buffer = buffer
        self._position = start
        self._end = end
        self._limits = limits
        self._is_cancelled = False

    def cancel(self) -> None:
        """Leave out the requests that are not begun: the client is gone."""
        self._is_cancelled = True

    def run(self) -> None:
        done_bytes = 0
        while (
            not self._is_cancelled
            and done_bytes < JOB_BYTES_MAX
            and len(self.found) < JOB_REQUESTS_MAX
            and (body := self._next_body()) is not None
        ):
            budget = self._limits.new_budget()
            try:
                parts = checked_parts(body, self._limits, budget)
            except RequestRefused as refused:
                self.found.append(RequestRefused(refused.reason, str(refused)))
                return
            self.found.append(parts)
            if parts and parts[-1].fault is not None and parts[-1].fault.closes:
                return
            done_bytes += len(body) + self._limits.decompressed_bytes_max - budget.bytes_left

    def _next_body(self) -> memoryview | None:
        start = self._position + FRAME_SIZE_BYTES
        if start + REQUEST_ID_BYTES > self._end:
            return None
        (size,) = FRAME_SIZE.unpack_from(self._buffer, self._position)
        if size < REQUEST_ID_BYTES or start + size > self._end:
            return None
        body = self._buffer[start : start + size]
        if request_id_of(body) not in (PRODUCE, MULTI_PRODUCE):
            return None
        self._position = start + size
        return body
