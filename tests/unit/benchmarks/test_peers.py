"""What the comparison with peers counts and draws, wherever the bytes of a socket are cut."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers import common, figures, tables, tansu
from benchmarks.peers.common import (
    MARK,
    MESSAGE_BYTES,
    WINDOW,
    DueTimes,
    Marks,
    RawSender,
    due_time_ns,
    message,
)
from benchmarks.peers.redis_streams import NOTHING, _is_whole, command

STREAM = b"head" + b"".join(b"\r\n$200\r\n" + message(number) for number in range(3)) + b"\r\n"


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 2, 11, 12, 13, 20, 199, 200, 211, len(STREAM)])
def test_each_message_is_counted_once_and_its_time_read_wherever_the_stream_is_cut(
    size: int,
) -> None:
    marks, due_times = Marks(MARK), DueTimes()
    assert sum(marks.count(piece) for piece in pieces(STREAM, size)) == 3
    assert [one for piece in pieces(STREAM, size) for one in due_times.of(piece)] == [0, 1, 2]


def test_a_message_has_the_size_that_the_tables_say_and_its_time() -> None:
    assert len(message(1)) == MESSAGE_BYTES
    assert due_time_ns(message(2**63)) == 2**63


def test_a_sender_waits_for_answers_when_a_window_of_messages_has_none() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"ok" * (WINDOW + 1))
        sender = RawSender(near, b"".join, b"ok")
        one = [b"m"] * 50
        for _ in range(WINDOW // 50):
            sender.send(one)
        assert sender._answered == 0
        sender.send(one)
        assert sender._answered >= 50
        far.sendall(b"ok" * 49)
        sender.settle()
        assert sender._answered == WINDOW + 50


@pytest.mark.parametrize("count", [1, 2])
def test_an_answer_of_redis_is_whole_with_its_last_byte_and_not_before(count: int) -> None:
    entry = b"*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nm\r\n$200\r\n" + message() + b"\r\n"
    answer = b"*1\r\n*2\r\n$1\r\nt\r\n*%d\r\n" % count + entry * count
    assert [size for size in range(len(answer) + 1) if _is_whole(bytearray(answer[:size]))] == [
        len(answer)
    ]
    assert _is_whole(bytearray(NOTHING))


def test_a_command_of_redis() -> None:
    assert command(b"XADD", b"t") == b"*2\r\n$4\r\nXADD\r\n$1\r\nt\r\n"


# Of records `hello` and `world` of that time, as kafka-python encodes them.
TIME_MS = 1_700_000_000_000
BATCH = bytes.fromhex(
    "0000000000000000 00000049 ffffffff 02 ea1c28f7 0000 00000001 0000018bcfe56800 0000018bcfe56800"
    "ffffffffffffffff ffff ffffffff 00000002"
    "16 00 00 00 01 0a 68656c6c6f 00 16 00 00 02 01 0a 776f726c64 00"
)


def test_a_record_batch_is_the_one_that_other_clients_send() -> None:
    assert tansu.crc32c(b"123456789") == 0xE3069283
    assert tansu.record_batch([b"hello", b"world"], TIME_MS) == BATCH


def test_a_fetch_begins_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = socket.socketpair()
    monkeypatch.setattr(common, "connect", lambda _port: near)
    batches = BATCH + struct.pack(">q", 2) + BATCH[8:]  # its next two records
    head = struct.pack(">ii", 0, 0) + tansu.one_topic("t")
    partition = struct.pack(">hqqii", 0, 4, 4, 0, len(batches)) + batches
    nothing = struct.pack(">hqqii", 0, 4, 4, -1, -1)  # null, no empty arrays
    with near, far:
        fetches = tansu.Fetches(tansu.Connection(0), "t")
        for answer, expected, offset in ((partition, batches, 0), (nothing, b"", 4)):
            far.sendall(struct.pack(">i", len(head + answer)) + head + answer)
            assert fetches.read() == expected
            assert far.recv(1000).endswith(struct.pack(">qi", offset, tansu.FETCH_BYTES))


def test_a_fetch_that_is_refused_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = socket.socketpair()
    monkeypatch.setattr(common, "connect", lambda _port: near)
    answer = struct.pack(">ii", 0, 0) + tansu.one_topic("t") + struct.pack(">hqqii", 3, 0, 0, 0, 0)
    with near, far:
        far.sendall(struct.pack(">i", len(answer)) + answer)
        with pytest.raises(RuntimeError, match="code 3"):
            tansu.Fetches(tansu.Connection(0), "t").read()


def test_a_curve_has_the_rate_between_its_points() -> None:
    timeline = [[25_000, 1.0], [50_000, 1.5], [50_000, 2.0]]
    assert figures.throughput_points(timeline) == ([5.0, 10.0], [5.0, 10.0])


def test_a_run_of_little_more_than_a_window_is_drawn_as_its_mean() -> None:
    timeline = [[WINDOW, 0.01], [2 * WINDOW, 4.0]]  # the window did not take what it seems to
    assert figures.throughput_points(timeline) == ([0.0, 2.0], [0.5, 0.5])


ENTRY = {
    "machine": {"cores": 2},
    "runs": 2,
    "missing": {"NATS JetStream, asynchronous": "not installed"},
    "records": [
        {
            "peer": "Redis Streams",
            "setting": "durable",
            "throughput": [
                {
                    "batch": batch,
                    "produced": [[5_000, 1.0 / rate], [10_000, 2.0 / rate]],
                    "consumed": [[10_000, 1.0]],
                    "produce_messages_per_s": 5_000.0 * rate,
                    "consume_messages_per_s": 10_000.0,
                    "produce_server_us": 1.0,
                    "produce_client_us": 2.0,
                    "consume_server_us": 3.0,
                    "consume_client_us": 4.0,
                    "peak_mib": 5.0,
                    "disk_bytes_per_message": 210.0,
                }
                for batch in (50, 1)
            ],
            "latency": [{"rate": 100, "reached": 100.0, "p50_ms": 1.0, "p99_ms": 2.0}],
        }
        for rate in (1, 3)
    ],
}


def test_figures_are_medians_with_the_least_and_the_most(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from rich.console import Console

    tables.print_entry(Console(width=160), ENTRY)
    printed = capsys.readouterr().out
    assert "10,000 (5,000-15,000)" in printed
    assert "1.00 / 2.00" in printed
    assert "NATS JetStream, asynchronous: not installed" in printed
    assert "Redis Streams, durable: appendonly, fsync before the answer" in printed


def test_a_rate_that_was_reached_in_some_runs_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The figures of the one run that reached it stood there as if all had."""
    from rich.console import Console

    first, second = ENTRY["records"]
    reached = [*first["latency"], {"rate": 5000, "reached": 5000.0, "p50_ms": 4.0, "p99_ms": 8.0}]
    others = [second, second | {"latency": []}]
    tables.print_entry(
        Console(width=160), ENTRY | {"records": [first | {"latency": reached}, *others]}
    )
    printed = capsys.readouterr().out
    assert "1.00 / 2.00 (2 of 3 runs)" in printed
    assert "4.00 / 8.00 (1 of 3 runs)" in printed


def test_one_figure_for_each_question_as_png_and_svg(tmp_path: Path) -> None:
    drawn = {path.name for path in figures.draw(ENTRY, tmp_path)}
    names = ("figure-4-batch-50", "figure-4-batch-1", "figure-5", "latency")
    assert drawn == {f"{name}.{form}" for name in names for form in ("png", "svg")}
    assert all((tmp_path / name).stat().st_size > 1000 for name in drawn)
