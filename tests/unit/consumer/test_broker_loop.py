"""The loop that reads a broker, with a policy that notes its calls and a scripted client."""

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest

from kafka2011.consumer import broker_loop
from kafka2011.consumer.broker_loop import PARTS_MAX, UNKNOWN_OFFSET, Backoff, PartitionRead
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.simple import FetchedSet
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.protocol.errors import KafkaError, OffsetOutOfRange, WrongPartition
from kafka2011.protocol.message_set import encode
from kafka2011.protocol.requests import FetchRequest
from tests.support.waiting import wait_until
from tests.unit.consumer.conftest import Pauses

ENTRY = encode([b"x" * 20])
WHOLE = len(ENTRY)
LARGE = encode([b"x" * 300])
LARGEST = 1000
DAMAGED = b"\0\0\0\1" + bytes(40)


def raise_first(errors: list[Any]) -> None:
    if errors:
        raise errors.pop(0)


class Client:
    """Answers each partition with `policy.answers`, or raises the first of `policy.failures`."""

    def __init__(self, policy: "Policy") -> None:
        self.requests: list[list[FetchRequest]] = []
        self.is_closed = False
        self.waits_ended = 0
        self._policy = policy

    def multifetch(self, parts: Sequence[FetchRequest]) -> list[FetchedSet]:
        self.requests.append(list(parts))
        raise_first(self._policy.failures)
        return [self._answer(part) for part in parts]

    def _answer(self, part: FetchRequest) -> FetchedSet:
        answer = self._policy.answers.get(part.partition, b"")
        error = answer if isinstance(answer, KafkaError) else None
        data = b"" if error else answer[: part.size_max]
        return FetchedSet(part.topic, part.partition, part.offset, memoryview(data), error)

    def waiting_fetch(
        self, parts: Sequence[FetchRequest], wait_ms: int, is_ended: Callable[[], bool]
    ) -> list[FetchedSet] | None:
        self._policy.waits_ms.append(wait_ms)
        return self.multifetch(parts) if self._policy.broker_can_wait else None

    def end_wait(self) -> None:
        self.waits_ended += 1

    def close(self) -> None:
        self.is_closed = True


class Policy(broker_loop.ReadingPolicy[PartitionRead]):
    """Reads `reads` in each round, and notes in `calls` what the loop makes of the answers."""

    def __init__(
        self, *reads: PartitionRead, wait_max_s: float = 0.0, gather_s: float = 0.0
    ) -> None:
        self.reads = list(reads) or [read_of(0)]
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[int, bytes | KafkaError] = {}
        self.failures: list[Exception] = []  # of requests
        self.offset_errors: list[KafkaError] = []
        self.unknown_address: list[Exception] = []
        self.clients: list[Client] = []
        self.wait_s: float | None = None
        self.broker_can_wait = True
        self.waits_ms: list[int] = []
        self.on_take: Callable[[], bool] = lambda: True  # whether it is progress
        self.on_connect: Callable[[], None] = lambda: None
        self.loop = broker_loop.BrokerLoop(
            "test",
            self,
            idle=Backoff(0.01, 0.05),
            failure=Backoff(0.1, 0.5),
            fetch_size_max=LARGEST,
            request_bytes_max=250,
            wait_max_s=wait_max_s,
            gather_s=gather_s,
        )

    def run(self, *, idle: int) -> tuple[list[float | None], list[float | None]]:
        """Rounds until so many idle pauses; their lengths, and those of pauses after failures."""
        woken, retry = Pauses(idle, self.loop.stop), Pauses(99, self.loop.stop)
        self.loop.woken, self.loop._retry_now = woken, retry
        self.loop.run()
        return woken.waited_s, retry.waited_s

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def plan(self) -> broker_loop.Plan[PartitionRead]:
        return broker_loop.Plan(self.reads, self.wait_s)

    def connect(self) -> Client:
        raise_first(self.unknown_address)
        self.on_connect()
        self.clients.append(Client(self))
        return self.clients[-1]

    def locate(self, read: PartitionRead) -> PartitionRead | None:
        raise_first(self.offset_errors)
        return PartitionRead(read.topic, read.partition, 70, read.size_max)

    def take(self, read: PartitionRead, data: memoryview, valid_bytes: int) -> bool:
        self.calls.append(("take", read.partition, read.offset, len(data), valid_bytes))
        return valid_bytes > 0 and self.on_take()

    def out_of_range(self, read: PartitionRead, error: OffsetOutOfRange) -> bool:
        self.calls.append(("out_of_range", read.partition))
        raise_first(self.offset_errors)
        return False

    def enlarge(self, read: PartitionRead, size_max: int) -> None:
        self.calls.append(("enlarge", read.partition, size_max))

    def refused(self, read: PartitionRead, error: KafkaError) -> bool:
        self.calls.append(("refused", read.partition, type(error).__name__))
        return False

    def offsets_failed(self, read: PartitionRead, error: KafkaError) -> None:
        self.calls.append(("offsets_failed", read.partition, str(error)))

    def broker_failed(self, error: Exception) -> None:
        self.calls.append(("broker_failed", str(error), broker_loop.is_bug(error)))

    def abandoned(self) -> None:
        self.calls.append(("abandoned",))


def read_of(partition: int, offset: int = 0, size_max: int = 100) -> PartitionRead:
    return PartitionRead("t", partition, offset, size_max)


@pytest.mark.parametrize(
    ("answer", "call", "goes_on"),
    [
        (ENTRY, ("take", 0, 0, WHOLE, WHOLE), True),
        (ENTRY + ENTRY[:9], ("take", 0, 0, WHOLE + 9, WHOLE), True),
        (b"", ("take", 0, 0, 0, 0), False),
        (LARGE, ("enlarge", 0, len(LARGE)), True),
        (encode([b"x" * 130]), ("enlarge", 0, 200), True),
        (encode([b"x" * LARGEST]), ("refused", 0, "MessageLargerThanFetchSize"), False),
        (DAMAGED, ("refused", 0, "InvalidMessage"), False),
        (WrongPartition("none"), ("refused", 0, "WrongPartition"), False),
        (OffsetOutOfRange("gone"), ("out_of_range", 0), False),
    ],
)
def test_each_answer_is_one_call_and_stops_no_other_partition(
    answer: bytes | KafkaError, call: tuple[Any, ...], goes_on: bool
) -> None:
    policy = Policy()
    policy.answers[0] = answer
    assert policy.loop.round() is goes_on
    assert policy.calls == [call]
    policy = Policy(read_of(0), read_of(1))
    policy.answers = {0: answer, 1: ENTRY}
    assert policy.loop.round()
    assert policy.calls == [call, ("take", 1, 0, WHOLE, WHOLE)]


@pytest.mark.parametrize(
    ("sizes", "requests"),
    [
        ([100] * 5, [2, 2, 1]),
        ([300, 100], [1, 1]),
        ([250], [1]),
        ([0] * (PARTS_MAX + 1), [PARTS_MAX, 1]),
    ],
)
def test_requests_are_bounded_and_nothing_is_left_out(
    sizes: list[int], requests: list[int]
) -> None:
    policy = Policy(*(read_of(number, size_max=size) for number, size in enumerate(sizes)))
    policy.loop.round()
    [client] = policy.clients
    assert [len(parts) for parts in client.requests] == requests
    asked = [part.partition for parts in client.requests for part in parts]
    assert asked == list(range(len(sizes)))


@pytest.mark.parametrize(
    ("counts", "copied"),
    [
        ([1, 17], [True, False]),
        ([1, 14], [False, False]),
        ([9], [False]),
        ([2] * 10, [False] * 10),
        ([1] * 17, [True] * 17),
        ([0, 1], [True, False]),
    ],
)
def test_a_small_answer_does_not_keep_a_large_response_in_memory(
    counts: list[int], copied: list[bool]
) -> None:
    """And a large one is not copied."""
    sets = [encode([b""] * count) for count in counts]
    response, kept = bytearray().join(sets), []

    class Whole(Client):
        """All answers are parts of one response."""

        def multifetch(self, parts: Sequence[FetchRequest]) -> list[FetchedSet]:
            ends = list(accumulate(map(len, sets)))
            return [
                FetchedSet(part.topic, part.partition, part.offset, memoryview(response)[start:end])
                for part, start, end in zip(parts, [0, *ends], ends, strict=False)
            ]

    class Keeping(Policy):
        def take(self, read: PartitionRead, data: memoryview, valid_bytes: int) -> bool:
            kept.append(data)
            return super().take(read, data, valid_bytes)

    reads = [read_of(number, size_max=1) for number in range(len(sets))]
    policy = Keeping(*reads)
    policy.connect = lambda: Whole(policy)  # type: ignore[method-assign]
    policy.loop.round()
    assert [bytes(data) for data in kept] == sets
    assert [data.obj is not response for data in kept] == copied
    assert all(len(data.obj) == len(data) for data in kept if data.obj is not response)


def test_an_unknown_offset_is_located_before_the_fetch() -> None:
    policy = Policy(read_of(0, UNKNOWN_OFFSET), read_of(1, 5))
    policy.loop.round()
    assert [call[1:3] for call in policy.calls] == [(0, 70), (1, 5)]


@pytest.mark.parametrize("offset", [UNKNOWN_OFFSET, 0])
def test_offsets_that_fail_are_one_partitions_failure_and_make_a_new_connection(
    offset: int,
) -> None:
    policy = Policy(read_of(0, offset), read_of(1))
    policy.answers = {0: OffsetOutOfRange("gone"), 1: ENTRY}
    policy.offset_errors = [BrokerUnavailable("hung up")]
    assert policy.loop.round()
    assert ("offsets_failed", 0, "hung up") in policy.calls
    assert policy.names[-1] == "take"
    policy.loop.round()
    assert [client.is_closed for client in policy.clients] == [True, False]


def test_idle_pauses_double_up_to_the_longest_and_begin_anew_after_progress() -> None:
    policy = Policy()
    assert policy.run(idle=4) == ([0.01, 0.02, 0.04, 0.05], [])
    policy = Policy()
    policy.answers[0] = ENTRY
    policy.on_take = lambda: policy.names.count("take") == 3
    assert policy.run(idle=4) == ([0.01, 0.02, 0.01, 0.02], [])


def test_a_round_that_got_all_there_is_lets_more_gather_and_a_full_one_does_not() -> None:
    policy = Policy(read_of(0, size_max=2 * WHOLE), gather_s=0.3)
    policy.answers = {0: 2 * ENTRY}  # full, then not, then nothing

    def less_each_time() -> bool:
        policy.answers[0] = policy.answers[0][WHOLE:]
        return True

    policy.on_take = less_each_time
    pauses, _ = policy.run(idle=2)
    assert pauses == [0.3, 0.01]


@pytest.mark.parametrize("wait_s", [None, 1.5])
def test_without_reads_it_waits_as_the_plan_says_and_connects_to_nothing(
    wait_s: float | None,
) -> None:
    policy = Policy()
    policy.reads, policy.wait_s = [], wait_s
    assert policy.run(idle=2) == ([wait_s, wait_s], [])
    assert policy.clients == []


@pytest.mark.parametrize(
    ("error", "counts_as_bug"),
    [
        (BrokerUnavailable("away"), False),
        (OSError("no route"), False),
        (CoordinationUnavailable("silent"), False),
        (ZeroDivisionError("ours"), True),
        (UnicodeError("a..b is no host"), True),
    ],
)
def test_failed_rounds_are_repeated_on_new_connections_with_longer_pauses(
    error: Exception, counts_as_bug: bool
) -> None:
    policy = Policy()
    policy.failures = [error] * 5
    _, retry_pauses = policy.run(idle=1)
    assert retry_pauses == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert policy.calls[:2] == [("abandoned",), ("broker_failed", str(error), counts_as_bug)]
    assert policy.names[-1] == "take", "the thread goes on"
    assert [client.is_closed for client in policy.clients] == [True] * 6


def test_pauses_after_failures_begin_anew_after_an_answer() -> None:
    policy = Policy()
    for failures, pauses in ((["one", "two"], [0.1, 0.2]), (["three"], [0.1])):
        policy.loop._stopping.clear()
        policy.failures = [BrokerUnavailable(text) for text in failures]
        assert policy.run(idle=1)[1] == pauses


def test_a_broker_without_an_address_is_looked_up_again() -> None:
    policy = Policy()
    policy.unknown_address = [BrokerUnavailable("not registered")] * 2
    assert policy.run(idle=1)[1] == [0.1, 0.2]
    assert policy.names[-1] == "take"


def test_one_fetch_waits_at_the_broker_until_something_else_may_be_due() -> None:
    one, two = [read_of(0)], [read_of(0, size_max=200), read_of(1, size_max=200)]
    for reads, wait_s, waits_ms in (
        (one, None, [1000]),
        (one, 0.5, [500]),
        (one, 0.0, []),
        (two, None, []),  # two requests: while one waits, the other's data do not come
    ):
        policy = Policy(*reads, wait_max_s=1.0)
        policy.wait_s = wait_s
        policy.run(idle=1)
        assert policy.waits_ms == waits_ms


def test_where_little_comes_one_request_for_less_of_each_partition_waits_as_well() -> None:
    policy = Policy(*(read_of(number) for number in range(5)), wait_max_s=1.0)
    policy.loop.round()
    policy.answers[3] = ENTRY  # short: all of it came
    for _ in range(2):
        policy.loop._round(policy.plan().reads, None)
    [client] = policy.clients
    assert [[part.size_max for part in parts] for parts in client.requests] == [
        *([100, 100], [100, 100], [100]),
        *([50] * 5, [50] * 5),
    ]
    assert policy.waits_ms == [1000, 1000]
    assert ("take", 3, 0, WHOLE, WHOLE) in policy.calls


@pytest.mark.parametrize(
    ("answer", "call"),
    [
        (ENTRY * 2, ("take", 1, 0, 50, WHOLE)),  # full
        (encode([b"x" * 60]), ("enlarge", 1, 100)),  # it fits what the policy wanted
        (encode([b"x" * 150]), ("enlarge", 1, 160)),
    ],
)
def test_where_more_is_left_whole_requests_follow(answer: bytes, call: tuple[Any, ...]) -> None:
    policy = Policy(*(read_of(number) for number in range(5)), wait_max_s=1.0)
    policy.loop.round()
    policy.answers[1] = answer
    assert policy.loop._round(policy.plan().reads, None)
    assert call in policy.calls
    policy.loop._round(policy.plan().reads, None)
    [client] = policy.clients
    assert [len(parts) for parts in client.requests] == [2, 2, 1, 5, 2, 2, 1]
    assert policy.waits_ms == [1000]


def test_a_broker_that_cannot_wait_is_polled_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    policy = Policy(wait_max_s=1.0)
    policy.broker_can_wait = False
    waited_s, _ = policy.run(idle=3)
    assert waited_s == [pytest.approx(pause, abs=0.01) for pause in (0.01, 0.02, 0.04)]
    assert [client.requests for client in policy.clients] == [[[FetchRequest("t", 0, 0, 100)]] * 3]
    assert caplog.text.count("broker_polled") == 1


def test_what_wakes_the_loop_ends_the_wait() -> None:
    policy = Policy()
    policy.loop.round()
    policy.loop.wake()
    assert policy.clients[0].waits_ended == 1
    assert policy.loop.woken.is_set()


def test_another_address_is_used_at_once() -> None:
    policy = Policy()
    policy.loop.round()
    policy.loop.round()
    assert len(policy.clients) == 1
    policy.loop.reconnect()
    assert policy.loop.woken.is_set()
    assert policy.loop._retry_now.is_set(), "also in the pause after a failure"
    policy.loop.round()
    assert [client.is_closed for client in policy.clients] == [True, False]
    assert not policy.loop._retry_now.is_set()


def test_stop_ends_a_request_under_way_and_frees_what_the_round_reserved() -> None:
    policy = Policy()
    is_asked, is_closed = threading.Event(), threading.Event()

    class Silent(Client):
        def multifetch(self, parts: Sequence[FetchRequest]) -> list[FetchedSet]:
            is_asked.set()
            is_closed.wait(60)
            raise BrokerUnavailable("closed")

        def close(self) -> None:
            is_closed.set()

    policy.connect = lambda: Silent(policy)  # type: ignore[method-assign]
    policy.loop.start()
    assert is_asked.wait(60)
    assert policy.loop.is_alive()
    policy.loop.stop()
    policy.loop.join()
    assert not policy.loop.is_alive()
    assert policy.calls == [("abandoned",)], "not a failure of the broker"


def test_a_connection_made_while_it_is_stopped_is_closed() -> None:
    policy = Policy()
    policy.on_connect = policy.loop.stop
    policy.loop.run()
    [client] = policy.clients
    assert client.is_closed
    assert client.requests == []


def test_a_loop_that_never_started_can_be_stopped_and_joined() -> None:
    policy = Policy()
    policy.loop.stop()
    policy.loop.join()


def test_a_bug_in_what_follows_a_failure_does_not_end_the_reading(monkeypatch) -> None:
    monkeypatch.setattr("kafka2011.runtime.workers.RESTART_FIRST_S", 0.001)
    policy = Policy()
    policy.failures = [BrokerUnavailable("away")]
    bugs: list[Exception] = [ZeroDivisionError()]
    policy.abandoned = lambda: raise_first(bugs)  # type: ignore[method-assign]
    policy.loop.start()
    wait_until(lambda: "take" in policy.names, "another round")
    policy.loop.stop()
    policy.loop.join()
    assert not bugs
