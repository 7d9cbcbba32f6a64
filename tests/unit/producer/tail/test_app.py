"""A run over real files, their patterns and the stored positions."""

import os
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from kafka2011.events.codec import decode
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.monitoring import MonitoringEvent, decode_report
from kafka2011.events.topics import AUDIT
from kafka2011.producer import Producer
from kafka2011.producer.partitioner import default_partitioner
from kafka2011.producer.tail.app import TailRun, batches, default_state
from kafka2011.producer.tail.config import TailConfig
from kafka2011.producer.tail.files import Files, OpenFile, StateFile
from kafka2011.producer.tail.messages import BadState, Cursor, FileId, Position, decode_positions
from kafka2011.protocol.message_set import payloads
from kafka2011.protocol.names import NAME_CHARACTERS_MAX
from tests.support.scripted_server import ScriptedBroker
from tests.support.synced import Synced
from tests.support.waiting import DEADLINE_S, wait_until
from tests.unit.producer.support import register


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


@contextmanager
def running(run: TailRun, stop: threading.Event) -> Iterator[None]:
    with ThreadPoolExecutor() as pool:
        status = pool.submit(run.run, until_end=False)
        try:
            yield
        finally:
            stop.set()
        assert status.result(DEADLINE_S) == 0


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

    with running(run, stop):
        wait_until(lambda: run._metrics is not None, "it serves its numbers")
        wait_until(lambda: number("failed_attempts_total") >= 2, "it tries again")
        assert number("unsent_lines") == 2
        with (tmp_path / "a.log").open("ab") as log:
            log.write(b"f\n")
        server.refused.clear()
        wait_until(lambda: number("lines_total") == 3, "all are durable")
        assert number("behind_bytes") == 0
    assert payloads(server.log("t", -1))[-3:] == [b"one", b"two", b"half"]
    (stored,) = decode_positions((tmp_path / "state").read_bytes())
    assert stored.offset == len(b"one\ntwo\nhalf\n")


@pytest.mark.parametrize("dies", [False, True])
def test_what_comes_and_is_rotated_away_while_the_brokers_are_away_is_sent(
    tmp_path, server, dies: bool
) -> None:
    """Also by the next run, if this one ends in the outage."""
    (tmp_path / "a.log").write_bytes(b"one\n")
    stop = threading.Event()
    run = refused(tmp_path, server, stop)
    state = tmp_path / "state"

    def is_stored(name: str) -> bool:
        stored = decode_positions(state.read_bytes()) if state.exists() else []
        return str(tmp_path / name) in [one.path for one in stored]

    with running(run, stop):
        wait_until(lambda: is_stored("a.log"), "its place is stored before a line is sent")
        for number in range(2):
            (tmp_path / f"{number}.log").write_bytes(b"line %d\n" % number)
            wait_until(lambda name=f"{number}.log": is_stored(name), "it is noted")
            (tmp_path / f"{number}.log").rename(tmp_path / f"{number}.old")
        if not dies:
            server.refused.clear()
            wait_until(lambda: run.tailer.stats.lines == 3, "all are durable")
    if dies:
        stop = threading.Event()
        run = refused(tmp_path, server, stop)
        server.refused.clear()
        with running(run, stop):
            wait_until(lambda: run.tailer.stats.lines == 3, "all are durable")
    assert set(payloads(server.log("t", -1))) == {b"one", b"line 0", b"line 1"}


def delivered(run: TailRun, stop: threading.Event, count: int, mend: Callable[[], object]) -> None:
    """Run it, call `mend` after some failed attempts, and stop it with `count` lines durable."""
    with running(run, stop):
        wait_until(lambda: run.attempts_failed >= 4, "it tries again and again")
        mend()
        wait_until(lambda: run.tailer.stats.lines == count, "all are durable")


def test_a_broker_gets_nothing_again_because_another_one_fails(tmp_path, server, other) -> None:
    """Once, where the flush of both fails; not at each further attempt."""
    (tmp_path / "a.log").write_bytes(b"".join(b"%d\n" % n for n in range(20_000)))
    other.close_at_barrier = 1000
    stop = threading.Event()
    config = TailConfig(
        topic="t",
        broker_list=((0, server.address), (1, other.address)),
        state_file=tmp_path / "state",
        retry_max_ms=5,
        poll_ms=5,
    )
    run = TailRun(config, [f"{tmp_path}/a.log"], stop)
    delivered(run, stop, 20_000, lambda: setattr(other, "close_at_barrier", 0))
    arrived = Counter(payloads(server.log("t", -1)))
    assert max(arrived.values()) <= 2
    stored = Counter(payloads(other.log("t", -1)))
    assert len(arrived + stored) == 20_000


def test_what_is_sent_before_another_broker_is_found_away_is_counted_once(
    tmp_path, server, registry
) -> None:
    """By the audit: reported twice and found once, it would be missing."""
    away = ScriptedBroker()
    away.close()
    register(registry, 0, server.address, t=1)
    register(registry, 1, away.address, t=1)
    keys = [str(tmp_path / f"{number}.log") for number in range(10, 99)]
    of_second = max(key for key in keys if default_partitioner(key, 2) == 1)  # sent behind others
    of_first = [key for key in keys if default_partitioner(key, 2) == 0 and key < of_second]
    for path in [*of_first, of_second]:
        Path(path).write_bytes(b"%s\n" % path.encode())
    counting: dict[str, Any] = {
        "audit_enable": True,
        "audit_dir": tmp_path / "counts",
        "audit_server": "host",
        "event_forms": FORMS_2011,
    }
    config = TailConfig(
        topic="t",
        zk_connect="not.asked:1",
        key="path",
        state_file=tmp_path / "state",
        retry_max_ms=5,
        poll_ms=5,
        **counting,
    )
    stop = threading.Event()
    run = TailRun(config, [f"{tmp_path}/*.log"], stop)
    run._producer = Producer(registry=registry, zk_read_num_retries=0, **counting)
    back: list[ScriptedBroker] = []
    try:
        delivered(run, stop, len(of_first) + 1, lambda: back.append(ScriptedBroker(away.port)))
        arrived = list(payloads(server.log("t", 0)))
        assert len(arrived) == len(set(arrived)) == len(of_first)
        assert len(list(payloads(back[0].log("t", 0)))) == 1
        reports = [
            decode_report(one)
            for broker in (server, back[0])
            for one in payloads(broker.log(AUDIT, 0))
        ]
        cells = [one.counts for one in reports if isinstance(one, MonitoringEvent)]
        assert sum(cell.count for some in cells for cell in some) == len(of_first) + 1
    finally:
        for one in back:
            one.close()


def test_the_lines_of_a_file_stay_in_one_partition_when_it_is_renamed(
    tmp_path, server, registry
) -> None:
    register(registry, 0, server.address, t=2)
    names = [str(tmp_path / f"{number}.log") for number in range(50)]
    path = next(
        one for one in names if default_partitioner(one, 2) != default_partitioner(f"{one}.1", 2)
    )
    Path(path).write_bytes(b"one\n")
    config = TailConfig(topic="t", zk_connect="not.asked:1", state_file=tmp_path / "state")
    for line in (b"two\n", b"three\n", b""):
        run = TailRun(config, [f"{tmp_path}/*.log*"], threading.Event())
        run._producer = Producer(registry=registry)
        assert run.run(until_end=True) == 0
        if Path(path).exists():
            Path(path).rename(f"{path}.1")
        with open(f"{path}.1", "ab") as log:
            log.write(line)
    assert payloads(server.log("t", default_partitioner(path, 2))) == [b"one", b"two", b"three"]


def test_positions_that_cannot_be_stored_are_said_once_until_they_can(
    tmp_path, server, monkeypatch, caplog
) -> None:
    attempts: list[bool] = []
    is_full = True
    write = StateFile.write

    def written(state: StateFile, positions: Sequence[Position]) -> None:
        attempts.append(is_full)
        if is_full:
            raise OSError(28, "No space left on device")
        write(state, positions)

    monkeypatch.setattr(StateFile, "write", written)
    (tmp_path / "a.log").write_bytes(b"one\n")
    stop = threading.Event()
    config = TailConfig(
        topic="t", broker_list=((0, server.address),), state_file=tmp_path / "state", poll_ms=1
    )
    run = TailRun(config, [f"{tmp_path}/a.log"], stop)
    with running(run, stop):
        wait_until(lambda: len(attempts) >= 20, "it tries again and again")
        is_full = False
        wait_until(lambda: (tmp_path / "state").exists(), "there is room again")
        is_full = True
        with (tmp_path / "a.log").open("ab") as log:
            log.write(b"two\n")
        failed = sum(attempts)
        wait_until(lambda: sum(attempts) >= failed + 20, "it is full again")
    assert sum("positions_not_stored" in line for line in caplog.messages) == 2
    assert sum("positions_stored" in line for line in caplog.messages) == 1


def test_a_name_that_a_broker_may_not_take_is_said_with_the_first_failure(
    tmp_path, server, caplog
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    stop = threading.Event()
    server.close()
    config = TailConfig(
        topic="app log", broker_list=((0, server.address),), state_file=tmp_path / "state"
    )
    run = TailRun(config, [f"{tmp_path}/a.log"], stop)
    with running(run, stop):
        wait_until(lambda: run.attempts_failed, "the first attempt has failed")
    assert "the broker may not take the name 'app log' (topic.name.rule)" in caplog.text


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

    with running(run, stop):
        wait_until(lambda: run.attempts_failed >= 2, "it tries again")
        assert health() == 503
        server.refused.clear()
        wait_until(lambda: run.tailer.stats.lines == 1, "the line is durable")
        assert health() == 200
        server.on_offsets = lambda: during_sends.append(health())
        with (tmp_path / "a.log").open("ab") as log:
            log.write(b"two\n")
        wait_until(lambda: run.tailer.stats.lines == 2, "the next line is durable")
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


def test_the_end_of_all_files_is_also_that_of_those_that_waited_for_room(tmp_path, server) -> None:
    for name in "abcde":
        (tmp_path / f"{name}.log").write_bytes(b"%s1\n%s2" % (2 * (name.encode(),)))
    config = TailConfig(
        topic="t", broker_list=((0, server.address),), state_file=tmp_path / "state", files_max=2
    )

    def run() -> int:
        return TailRun(config, [f"{tmp_path}/*.log"], threading.Event()).run(until_end=True)

    assert run() == 0
    expected = [b"%s%d" % (name.encode(), n) for name in "abcde" for n in (1, 2)]
    assert sorted(payloads(server.log("t", -1))) == expected
    (tmp_path / "e.log").rename(tmp_path / "e.1")
    (tmp_path / "d.log").rename(tmp_path / "d.1")
    assert run() == 0
    assert len(payloads(server.log("t", -1))) == 10, "nothing is sent again"


def test_a_file_that_cannot_be_read_is_status_1_at_the_end_of_the_others(
    tmp_path, server, monkeypatch
) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b"one\n")
    config = TailConfig(
        topic="t", broker_list=((0, server.address),), state_file=tmp_path / "state"
    )
    is_open = False
    really_open = Files.open

    def opened(files: Files, path: str) -> OpenFile:
        if path.endswith("b.log") and not is_open:
            raise PermissionError(13, "Permission denied")
        return really_open(files, path)

    monkeypatch.setattr(Files, "open", opened)

    def run(*names: str) -> int:
        paths = [str(tmp_path / name) for name in names]
        return TailRun(config, paths, threading.Event()).run(until_end=True)

    assert run("a.log", "b.log") == 1
    assert run("b.log") == 1
    assert payloads(server.log("t", -1)) == [b"one"]
    is_open = True
    assert run("a.log", "b.log") == 0
    assert payloads(server.log("t", -1)) == [b"one", b"one"]


def test_a_line_is_counted_whatever_the_name_of_its_file_is(tmp_path, server) -> None:
    path = os.fsencode(tmp_path) + b"/a\xff.log"
    with open(path, "wb") as log:
        log.write(b"one\n")
    config = TailConfig(
        topic="t",
        broker_list=((0, server.address),),
        state_file=tmp_path / "state",
        audit_enable=True,
        audit_dir=tmp_path / "audit",
        event_forms=FORMS_2011,
    )
    run = TailRun(config, [f"{tmp_path}/*.log"], threading.Event())
    assert run.run(until_end=True) == 0
    [event] = payloads(server.log("t", -1))
    _, found = decode(event)
    assert (found["line"], found["source"]) == ("one", f"{tmp_path}/a\\xff.log")


@pytest.fixture
def tail(tmp_path, server, monkeypatch) -> Callable[..., tuple[TailRun, int, list[Any]]]:
    """Runs to the end over names in the test's directory; returns the run, its status, and what it
    logged of files that are missing."""
    monkeypatch.chdir(tmp_path)

    def ended(*names: str) -> tuple[TailRun, int, list[Any]]:
        config = TailConfig(
            topic="t", broker_list=((0, server.address),), state_file=tmp_path / "st", poll_ms=5
        )
        run = TailRun(config, names, threading.Event())
        with structlog.testing.capture_logs() as logged:
            status = run.run(until_end=True)
        return run, status, [one for one in logged if one["event"] == "file_missing"]

    return ended


@pytest.mark.parametrize("names", [("nothere*.log",), ("nothere.log",), ("logs",)])
def test_nothing_that_was_named_is_there_whatever_the_state_knows(
    tmp_path, tail, names: tuple[str, ...]
) -> None:
    """With the positions of another file it was status 0, and *0 lines behind what was sent*."""
    (tmp_path / "a.log").write_bytes(b"one\n")
    (tmp_path / "logs").mkdir()
    assert tail("a.log")[1:] == (0, [])
    run, status, missing = tail(*names)
    assert (status, run.tailer.stats.resumed) == (1, 0)
    assert [one["names"] for one in missing] == [list(names)]


def test_the_rest_of_a_rotated_file_is_of_the_pattern_that_named_it(tmp_path, tail) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    assert tail("*.log")[1:] == (0, [])
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    assert tail("*.log")[1:] == (0, [])


def test_what_was_sent_before_is_of_files_of_this_run_alone(tmp_path, tail) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    (tmp_path / "empty.log").write_bytes(b"")
    assert tail("a.log")[0].tailer.stats.resumed == 0
    assert tail("empty.log")[0].tailer.stats.resumed == 0
    assert tail("a.log")[0].tailer.stats.resumed == 1


def test_what_is_missing_is_named_as_it_was_typed_and_a_directory_is_called_one(
    tmp_path, tail
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "a.log").write_bytes(b"one\n")
    _, status, missing = tail("no*.log", "b.log", "logs")
    assert status == 1
    assert [(one["names"], one["detail"]) for one in missing] == [
        (["logs"], "a directory is not followed: name its files, or a pattern such as 'logs/*'"),
        (["no*.log", "b.log"], "no such files"),
    ]
    # The shell makes such names of an unquoted pattern.
    _, status, missing = tail("a.log", "logs")
    assert (status, [one["names"] for one in missing]) == (0, [["logs"]])


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="the brokers are not named"):
        TailConfig(topic="t")
    with pytest.raises(ValueError, match="topic"):
        TailConfig(topic="a/b", zk_connect="h:1")
    config = TailConfig(topic="t", zk_connect="h:1", max_message_bytes=100)
    assert config.line_bytes_max == 100
