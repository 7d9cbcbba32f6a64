"""The simple consumer: 0.7's bytes, reconnects, hostile answers."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from kafka2011.consumer.errors import BrokerUnavailable, ConsumerClosed
from kafka2011.consumer.simple import EARLIEST, LATEST, SimpleConsumer
from kafka2011.protocol import errors
from kafka2011.protocol.requests import FetchRequest, WaitingFetchRequest
from tests.support import raw_requests
from tests.support.bombs import BOMB_BYTES, BOMBS_COUNT, bombs, bounded_memory
from tests.support.raw_requests import EMPTY
from tests.support.scripted_server import ScriptedBroker, ScriptedServer
from tests.support.waiting import DEADLINE_S, wait_until
from tests.vectors import vector

hex_of = bytes.fromhex


def test_a_fetched_set_of_bombs_comes_in_pieces(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    broker.logs["t", 0] += bombs()
    found = client.fetch("t", 0, 0, len(bombs()) - 1)
    offset = 0
    with bounded_memory():
        for piece in found.pieces():
            for payload, next_offset in piece:
                assert len(payload) == BOMB_BYTES
                offset = next_offset
            payload, piece = b"", []
    assert offset == found.valid_bytes() == len(bombs()) // BOMBS_COUNT * (BOMBS_COUNT - 1)


def test_requests_are_byte_for_byte_the_originals(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    client.fetch("test", 0, 0, 1000)
    client.fetch("perf", 0, 0, 20000)
    client.multifetch(
        [
            FetchRequest("test", 0, 0, 15),
            FetchRequest("test", 1, 0, 1000),
            FetchRequest("logs", 9, 0, 1000),
            FetchRequest("nosuch", 0, 0, 1000),
            FetchRequest("test", 0, 9999999, 100),
        ]
    )
    client.multifetch([FetchRequest("nest", 0, 0, 1000)])
    for time_ms in (LATEST, EARLIEST, 1000):
        client.get_offsets_before("test", 0, time_ms, 10)
    client.earliest("cons", 0)
    client.latest("cons", 0)
    recorded = ("F1", "F2", "F3", "F4", "F7", "F8", "F9", "F10", "F11")
    assert broker.frames == [vector(name) for name in recorded]
    assert len(broker.conversations) == 1


@pytest.mark.parametrize(
    ("offset", "size", "messages"),
    [
        (0, 1000, [(b"hello", 15), (b"world", 30), (b"", 40)]),
        (0, 29, [(b"hello", 15)]),
        (40, 1000, []),
    ],
)
def test_messages_of_a_fetch_carry_their_next_offsets(
    broker: ScriptedBroker,
    client: SimpleConsumer,
    offset: int,
    size: int,
    messages: list[tuple[bytes, int]],
) -> None:
    broker.append("t", 0, [b"hello", b"world", b""])
    fetched = client.fetch("t", 0, offset, size)
    assert fetched.messages() == messages
    assert fetched.valid_bytes() == (messages[-1][1] if messages else 0)
    with pytest.raises(errors.MessageLargerThanFetchSize):
        client.fetch("t", 0, 0, 14).messages()


def test_bytes_that_begin_no_entry_are_named_by_their_offset_in_the_log(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    broker.append("t", 0, [b"\xff" * 8])
    with pytest.raises(errors.InvalidMessage, match=r"^length -1 of the entry at 12$") as raised:
        client.fetch("t", 0, 12, 1000).valid_bytes()
    assert raised.value.position == 0


def test_multifetch_has_an_error_per_part(broker: ScriptedBroker, client: SimpleConsumer) -> None:
    broker.append("a", 0, [b"x"])
    broker.errors.update({("b", 0): -1, ("c", 0): 3})
    asked = [("a", 0), ("b", 0), ("c", 0), ("a", 99)]
    good, *bad = client.multifetch([FetchRequest(topic, 0, at, 100) for topic, at in asked])
    assert good.messages() == [(b"x", 11)]
    assert [type(part.error) for part in bad] == [
        errors.UnknownBrokerError,
        errors.WrongPartition,
        errors.OffsetOutOfRange,
    ]
    with pytest.raises(errors.OffsetOutOfRange):
        bad[-1].valid_bytes()
    with pytest.raises(errors.WrongPartition):
        client.fetch("c", 0, 0, 100)
    assert client.multifetch([]) == []


def test_a_hang_up_is_repeated_once_on_a_new_connection(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    """As 0.7's: the same request once more, and no further."""
    client.latest("t", 0)
    broker.hang_ups = 1
    assert client.latest("t", 0) == 0
    assert len(broker.conversations) == 2
    broker.hang_ups = 2
    with pytest.raises(BrokerUnavailable):
        client.get_offsets_before("test", 9, LATEST, 10)
    c3 = hex_of("0000001800040004746573740000 0009ffffffffffffffff0000000a")
    assert broker.frames[-2:] == [c3, c3]
    assert client.latest("t", 0) == 0


def test_a_broker_that_is_not_there(
    broker: ScriptedBroker, client: SimpleConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.close()
    with pytest.raises(BrokerUnavailable) as caught:
        client.latest("t", 0)
    assert caught.value.retriable

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with SimpleConsumer("nowhere", 1) as lost, pytest.raises(BrokerUnavailable, match="no such"):
        lost.latest("t", 0)


def test_the_ends_of_many_are_asked_at_once(broker: ScriptedBroker, client: SimpleConsumer) -> None:
    """The same frames as one by one, on one connection."""
    ends = [broker.append("t", number, [b"x"] * number) for number in range(1, 4)]
    places = [("t", number) for number in range(1, 4)] + [("other", 0)] * 300
    assert client.latest_of(places) == ends + [0] * 300
    asked = list(broker.frames)
    for place in places:
        client.latest(*place)
    assert broker.frames[len(asked) :] == asked
    assert len(broker.conversations) == 1
    assert client.latest_of([]) == []


def test_of_many_ends_the_one_that_the_broker_refuses_is_unknown(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    broker.append("t", 1, [b"x"])
    broker.hang_ups = 3  # at all three together, and twice at the first alone
    assert client.latest_of([("t", 0), ("t", 1), ("t", 2)]) == [None, broker.end("t", 1), 0]


def test_a_broker_that_hangs_is_asked_once_for_many_ends(broker: ScriptedBroker) -> None:
    broker.is_silent = True
    client = SimpleConsumer(*broker.address, socket_timeout_ms=150)
    with client, pytest.raises(BrokerUnavailable, match="no answer within"):
        client.latest_of([("t", number) for number in range(50)])
    wait_until(lambda: broker.conversations, "the connection accepted")
    assert len(broker.conversations) == 1
    broker.close()
    with SimpleConsumer(*broker.address) as client, pytest.raises(BrokerUnavailable):
        client.latest_of([("t", 0), ("t", 1)])


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\udc80"])
def test_a_host_that_no_name_can_be(host: str) -> None:
    with (
        SimpleConsumer(host, 1) as client,
        pytest.raises(BrokerUnavailable, match="is not a valid host"),
    ):
        client.latest("t", 0)


@pytest.mark.parametrize("port", [99_999, 0, -1])
def test_a_port_that_no_broker_can_have_is_not_another_one(port: int) -> None:
    text = f"1 to 65535, not {port}"
    with SimpleConsumer("127.0.0.1", port) as client, pytest.raises(BrokerUnavailable, match=text):
        client.latest("t", 0)


@pytest.mark.parametrize(
    ("name", "number"),
    [("socket_timeout_ms", n) for n in (0, -5, 10**20)]
    + [("buffer_bytes", n) for n in (-1, 2**40)],
)
def test_a_number_that_the_kernel_cannot_take_is_refused_with_its_range(
    name: str, number: int
) -> None:
    with pytest.raises(ValueError, match=f"{name} is [01] to 2147483647, not {number}"):
        SimpleConsumer("127.0.0.1", 9092, **{name: number})


def test_silence_ends_after_the_timeout(broker: ScriptedBroker) -> None:
    """Unlike 0.7, whose read timeout has no effect."""
    broker.is_silent = True
    client = SimpleConsumer(*broker.address, socket_timeout_ms=150)
    with client, pytest.raises(BrokerUnavailable, match="no answer within"):
        client.latest("t", 0)


@pytest.mark.parametrize(
    "answer",
    [
        "00000000",
        "ffffffff 0000",
        "00000001 00",
        "7fffffff 0000",
        "00000006 0000 00000009",
        "00000006 0000 ffffffff",
        "0000000e 0001 00000001 0000000000000000",
    ],
)
def test_a_bad_offsets_answer_is_the_brokers_fault_and_closes(
    broker: ScriptedBroker, client: SimpleConsumer, answer: str
) -> None:
    broker.raw_answers = [hex_of(answer)]
    with pytest.raises((errors.RemoteProtocolError, errors.OffsetOutOfRange)):
        client.latest("t", 0)
    assert client.latest("t", 0) == 0


@pytest.mark.parametrize(
    "answer",
    [
        "0000000e 0000 00000002 0000 00000002 0000 ",  # two parts for three asked
        "00000008 0000 00000002 0000 ",
        "0000000e 0000 00000001 0000 00000003 0000 ",
    ],
)
def test_a_multifetch_answer_out_of_step_closes(
    broker: ScriptedBroker, client: SimpleConsumer, answer: str
) -> None:
    broker.raw_answers = [hex_of(answer)]
    parts = [FetchRequest("t", 0, 0, 10)] * 3
    with pytest.raises(errors.RemoteProtocolError):
        client.multifetch(parts)
    assert len(client.multifetch(parts)) == 3
    assert len(broker.conversations) == 2


def test_an_answer_larger_than_asked_for_is_refused_before_it_is_kept(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    broker.raw_answers = [hex_of("00000068 0000") + bytes(102)]
    with pytest.raises(errors.FrameTooLarge):
        client.fetch("t", 0, 0, 100)
    broker.raw_answers = [hex_of("00000066 0000") + bytes(100)]
    assert len(client.fetch("t", 0, 0, 100).data) == 100


def test_close_from_another_thread_ends_a_request_under_way(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    broker.is_silent = True
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            client.latest("t", 0)
        except ConsumerClosed as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: broker.frames, "the request")
    client.close()
    thread.join(60)
    assert len(caught) == 1
    with pytest.raises(ConsumerClosed):
        client.latest("t", 0)


def test_a_connection_that_is_made_while_it_is_closed_is_not_used(
    broker: ScriptedBroker, client: SimpleConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = client._connect

    def closed_meanwhile(deadline: float) -> socket.socket:
        client.close()
        return connect(deadline)

    monkeypatch.setattr(client, "_connect", closed_meanwhile)
    with pytest.raises(ConsumerClosed):
        client.latest("t", 0)
    assert broker.frames == []


def test_large_answers_arrive_whole(broker: ScriptedBroker, client: SimpleConsumer) -> None:
    payloads = [bytes([number]) * 700_000 for number in range(16)]
    end = broker.append("t", 0, payloads)
    fetched = client.fetch("t", 0, 0, end)
    assert [payload for payload, _ in fetched.messages()] == payloads


# --- a fetch that waits ---------------------------------------------------------------------------


def arriving_later(broker: ScriptedBroker, requests: int) -> threading.Thread:
    """Appends one message once so many requests have come."""

    def work() -> None:
        wait_until(lambda: len(broker.frames) >= requests, "the requests")
        broker.append("t", 0, [b"later"])

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def waiting_frames(broker: ScriptedBroker) -> list[int]:
    return [r.wait_ms for r in broker.requests() if isinstance(r, WaitingFetchRequest)]


def test_a_fetch_waits_at_a_broker_that_can(broker: ScriptedBroker, client: SimpleConsumer) -> None:
    broker.can_wait = True
    thread = arriving_later(broker, 2)
    assert client.fetch("t", 0, 0, 100, wait_ms=60_000).messages() == [(b"later", 15)]
    thread.join()
    first, second = waiting_frames(broker)
    assert first == 0, "it asks whether the broker can"
    assert second == 29_000, "no longer than half of the time after which it is silent"
    assert client.fetch("t", 0, 15, 100, wait_ms=20).messages() == []
    assert len(broker.conversations) == 1


def test_an_original_broker_is_polled(broker: ScriptedBroker, client: SimpleConsumer) -> None:
    thread = arriving_later(broker, 3)
    assert client.fetch("t", 0, 0, 100, wait_ms=60_000).messages() == [(b"later", 15)]
    thread.join()
    assert client.fetch("t", 0, 15, 100, wait_ms=20).messages() == []
    assert waiting_frames(broker) == [0], "once a connection"
    assert len(broker.conversations) == 2
    broker.can_wait = True  # another program took its place
    broker.hang_up()
    wait_until(lambda: not client.fetch("t", 0, 15, 100).data, "a new connection")
    assert client.waiting_fetch([FetchRequest("t", 0, 15, 100)], 10) is not None


def test_a_connection_that_broke_before_says_nothing_about_the_broker(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    broker.can_wait = True
    assert client.earliest("t", 0) == 0
    broker.hang_up()
    assert client.waiting_fetch([FetchRequest("t", 0, 0, 100)], 10) is not None


def test_a_broker_that_is_gone_is_unavailable_whatever_it_knows(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    broker.can_wait = True
    part = FetchRequest("t", 0, 0, 100)
    assert client.waiting_fetch([part], 10) is not None
    broker.close()
    with pytest.raises(BrokerUnavailable):
        client.waiting_fetch([part], 10)


def test_a_wait_is_ended_from_another_thread(
    broker: ScriptedBroker, client: SimpleConsumer
) -> None:
    broker.can_wait = True
    part = FetchRequest("t", 0, 0, 100)
    client.end_wait()  # there is none
    client.waiting_fetch([part], 60_000)
    assert client.waiting_fetch([part], 60_000, lambda: True) is not None, "ended before"

    def end() -> None:
        wait_until(lambda: len(broker.frames) == 3, "the wait")
        client.end_wait()
        client.end_wait()

    thread = threading.Thread(target=end)
    thread.start()
    found = client.waiting_fetch([part], 60_000)
    thread.join()
    assert found is not None
    assert not found[0].data
    broker.append("t", 0, [b"next"])
    assert client.fetch("t", 0, 0, 100).messages() == [(b"next", 14)], "still in step"


class HungBroker(ScriptedServer):
    """Answers a fetch of nothing, and then reads nothing until `goes_on`; keeps what it reads."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.read = bytearray()
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(EMPTY)
        self.goes_on.wait()
        while piece := connection.recv(1 << 20):
            self.read += piece


@pytest.fixture
def hung() -> Iterator[HungBroker]:
    with HungBroker() as made:
        yield made
        made.goes_on.set()


@contextlib.contextmanager
def waiting(
    broker: HungBroker, parts: list[FetchRequest], is_ended: Callable[[], bool] = lambda: False
) -> Iterator[SimpleConsumer]:
    """A client with a `waiting_fetch` of another thread."""

    def fetch() -> None:
        with contextlib.suppress(ConsumerClosed):
            client.waiting_fetch(parts, 600_000, is_ended)

    with SimpleConsumer(*broker.address, socket_timeout_ms=1_200_000) as client:
        assert client.waiting_fetch([], 0) == [], "the first of a connection does not wait"
        thread = threading.Thread(target=fetch)
        thread.start()
        yield client
    thread.join()


def end_wait_elsewhere(client: SimpleConsumer) -> None:
    """Returns when `end_wait` has returned: its callers hold the locks of all readers."""
    thread = threading.Thread(target=client.end_wait, daemon=True)
    thread.start()
    wait_until(lambda: not thread.is_alive(), "end_wait to return")


def test_a_wait_is_ended_while_its_request_is_still_being_sent(hung: HungBroker) -> None:
    begun = threading.Event()
    parts = [FetchRequest("x" * 200, number, 0, 1) for number in range(30_000)]
    with waiting(hung, parts, lambda: bool(begun.set())) as client:
        assert begun.wait(DEADLINE_S), "the request is being sent"
        end_wait_elsewhere(client)
        hung.goes_on.set()
        sent = raw_requests.waiting_fetch(0)
        wait_until(lambda: hung.read.endswith(sent), "the end of the wait behind its request")


def test_a_wait_that_cannot_be_ended_holds_nobody_up(hung: HungBroker) -> None:
    with waiting(hung, [FetchRequest("t", 0, 0, 100)]) as client:
        wait_until(lambda: client._is_waiting, "the wait")
        assert client._socket is not None
        with contextlib.suppress(BlockingIOError):
            while True:  # as a request that the broker's kernel has no room for
                client._socket.send(bytes(1 << 16), socket.MSG_DONTWAIT)
        end_wait_elsewhere(client)
