"""A run over real files, their patterns and the stored positions."""

import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafka2011.producer.tail.app import TailRun, batches, default_state
from kafka2011.producer.tail.config import TailConfig
from kafka2011.producer.tail.files import Files, StateFile
from kafka2011.producer.tail.messages import BadState, Cursor, FileId, decode_positions
from kafka2011.protocol.message_set import payloads
from kafka2011.protocol.names import NAME_CHARACTERS_MAX
from tests.support.scripted_server import ScriptedBroker
from tests.support.synced import Synced
from tests.support.waiting import DEADLINE_S, wait_until


def test_sets_are_bounded_in_number_and_bytes() -> None:
    messages = [b"x"] * 1201 + [bytes(600), bytes(600), b"y"]
    found = list(batches(messages, 1000))
    assert [len(some) for some in found] == [500, 500, 202, 2]
    assert [one for some in found for one in some] == messages


def test_patterns_find_regular_files_once(tmp_path) -> None:
    (tmp_path / "a.log").write_bytes(b"x")
    (tmp_path / "b[1].log").write_bytes(b"x")
    (tmp_path / "dir.log").mkdir()
    (tmp_path / "link.log").symlink_to(tmp_path / "a.log")
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    files = Files([f"{tmp_path}/*.log", f"{tmp_path}/a.log", f"{tmp_path}/b[1].log"])
    ids = {path: file for file, path in files.scan().items()}
    assert sorted(ids) == [f"{tmp_path}/a.log", f"{tmp_path}/b[1].log"]
    file = ids[f"{tmp_path}/a.log"]
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    assert files.renamed(file, f"{tmp_path}/a.log") == f"{tmp_path}/a.log.1"
    assert files.renamed(file, f"{tmp_path}/none/a.log") is None
    with pytest.raises(OSError, match="too long"):
        files.renamed(file, f"{tmp_path}/{'x' * 300}/a.log")
    with pytest.raises(OSError, match="regular"):
        files.open(str(tmp_path / "dir.log"))


@pytest.mark.parametrize(
    ("topic", "place"),
    [
        ("t" * 245, f"tail-{'t' * 245}"),
        ("t" * NAME_CHARACTERS_MAX, f"tail/{'t' * NAME_CHARACTERS_MAX}"),
        ("ü" * 124, f"tail/{'ü' * 124}"),
    ],
)
def test_the_state_of_every_topic_has_a_place(tmp_path, topic: str, place: str) -> None:
    path = default_state(tmp_path, topic)
    assert path == tmp_path / ".kafka2011" / place
    state = StateFile(path)
    state.write([Cursor(10).position(FileId(1, 2), "a.log")])
    state.close()


def test_one_process_has_the_state_file_and_it_is_replaced_whole(tmp_path) -> None:
    path = tmp_path / "deep" / "state"
    state = StateFile(path)
    assert state.read() is None
    with pytest.raises(BadState, match="in use"):
        StateFile(path)
    position = Cursor(10).position(FileId(1, 2), "a\udcff.log")
    state.write([position])
    state.close()
    again = StateFile(path)
    assert again.read() == [position]
    path.write_bytes(b"{")
    with pytest.raises(BadState, match="move it away"):
        again.read()
    again.close()


def test_the_first_state_outlives_a_power_failure(tmp_path, monkeypatch) -> None:
    synced = Synced(monkeypatch)
    path = tmp_path / "very" / "deep" / "state"
    state = StateFile(path)
    state.write([])
    assert [synced.has_name(one) for one in (path.parent.parent, path.parent, path)] == [True] * 3
    before = len(synced.all)
    state.write([Cursor(10).position(FileId(1, 2), "a.log")])
    assert len(synced.all) == before + 1, "an older state sends lines again, and loses none"
    state.close()


def test_from_end_what_comes_after_the_first_look_is_sent_by_the_next_run_at_the_latest(
    tmp_path, server
) -> None:
    (tmp_path / "a.log").write_bytes(b"old\n")

    def run() -> TailRun:
        config = TailConfig(
            topic="t", broker_list=((0, server.address),), state_file=tmp_path / "st", start="end"
        )
        return TailRun(config, [f"{tmp_path}/*.log"], threading.Event())

    killed = run()
    (tmp_path / "a.log").write_bytes(b"old\none\n")
    (tmp_path / "b.log").write_bytes(b"two\n")
    killed._close()
    assert run().run(until_end=True) == 0
    assert sorted(payloads(server.log("t", -1))) == [b"one", b"two"]


def test_from_end_without_a_place_for_the_state_does_not_begin(tmp_path, server) -> None:
    """The next run would not know what came after this one's look."""
    (tmp_path / "st.new").mkdir()
    config = TailConfig(
        topic="t", broker_list=((0, server.address),), state_file=tmp_path / "st", start="end"
    )
    for _ in range(2):  # and gives the state's lock back
        with pytest.raises(IsADirectoryError):
            TailRun(config, [f"{tmp_path}/*.log"], threading.Event())


NAME = "tail.example"  # by which its numbers are asked for


def refused(tmp_path: Path, server: ScriptedBroker, stop: threading.Event) -> TailRun:
    """Sends the logs of a directory to a broker that does not take them."""
    server.refused.add("t")
    config = TailConfig(
        topic="t",
        broker_list=((0, server.address),),
        state_file=tmp_path / "state",
        retry_max_ms=20,
        poll_ms=5,
        metrics_port=0,
        http_hosts=(NAME,),
    )
    return TailRun(config, [f"{tmp_path}/*.log"], stop)


def test_a_run_keeps_what_it_read_until_a_broker_takes_it(tmp_path, server) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntwo\nhal")
    stop = threading.Event()
    run = refused(tmp_path, server, stop)

    def number(name: str) -> float:
        assert run._metrics is not None
        page = f"http://127.0.0.1:{run._metrics.port}/metrics"
        request = urllib.request.Request(page, headers={"Host": NAME})
        text = urllib.request.urlopen(request, timeout=60).read().decode()
        (line,) = [line for line in text.splitlines() if line.startswith(f"kafka2011_tail_{name} ")]
        return float(line.split()[1])

    with ThreadPoolExecutor() as pool:
        status = pool.submit(run.run, until_end=False)
        wait_until(lambda: run._metrics is not None, "it serves its numbers")
        wait_until(lambda: number("failed_attempts_total") >= 2, "it tries again")
        assert number("unsent_lines") == 2
        with (tmp_path / "a.log").open("ab") as log:
            log.write(b"f\n")
        server.refused.clear()
        wait_until(lambda: number("lines_total") == 3, "all are durable")
        assert number("behind_bytes") == 0
        stop.set()
        assert status.result(DEADLINE_S) == 0
    assert payloads(server.log("t", -1))[-3:] == [b"one", b"two", b"half"]
    (stored,) = decode_positions((tmp_path / "state").read_bytes())
    assert stored.offset == len(b"one\ntwo\nhalf\n")


def test_a_run_is_unwell_from_a_failed_attempt_to_the_next_delivery(tmp_path, server) -> None:
    """Not for ever after: a probe that comes during a send would have it restarted."""
    (tmp_path / "a.log").write_bytes(b"one\n")
    stop = threading.Event()
    run = refused(tmp_path, server, stop)
    during_sends: list[int] = []

    def health() -> int:
        assert run._metrics is not None
        try:
            page = f"http://127.0.0.1:{run._metrics.port}/healthz"
            return int(urllib.request.urlopen(page, timeout=60).status)
        except urllib.error.HTTPError as error:
            return error.code

    with ThreadPoolExecutor() as pool:
        status = pool.submit(run.run, until_end=False)
        wait_until(lambda: run.attempts_failed >= 2, "it tries again")
        assert health() == 503
        server.refused.clear()
        wait_until(lambda: run.tailer.stats.lines == 1, "the line is durable")
        assert health() == 200
        server.on_offsets = lambda: during_sends.append(health())
        with (tmp_path / "a.log").open("ab") as log:
            log.write(b"two\n")
        wait_until(lambda: run.tailer.stats.lines == 2, "the next line is durable")
        stop.set()
        assert status.result(DEADLINE_S) == 0
    assert during_sends[0] == 200


def test_a_named_file_that_is_not_there_is_status_1_at_the_end_of_the_others(
    tmp_path, server
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    config = TailConfig(
        topic="t", broker_list=((0, server.address),), state_file=tmp_path / "state", poll_ms=5
    )
    absent, there = str(tmp_path / "nosuch.log"), str(tmp_path / "a.log")
    for names, status in (([absent, there], 1), ([absent], 1), ([there, f"{absent}*"], 0)):
        assert TailRun(config, names, threading.Event()).run(until_end=True) == status
    assert payloads(server.log("t", -1)) == [b"one"]
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")  # the rest of it is sent
    with (tmp_path / "a.log.1").open("ab") as log:
        log.write(b"two\n")
    assert TailRun(config, [there], threading.Event()).run(until_end=True) == 0
    assert payloads(server.log("t", -1)) == [b"one", b"two"]


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="the brokers are not named"):
        TailConfig(topic="t")
    with pytest.raises(ValueError, match="topic"):
        TailConfig(topic="a/b", zk_connect="h:1")
    config = TailConfig(topic="t", zk_connect="h:1", max_message_bytes=100)
    assert config.line_bytes_max == 100
