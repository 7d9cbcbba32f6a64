"""The frontend's process against real brokers: every event arrives, and the counts say so.

After any crash the stored messages may be more than the reported ones (extra), never fewer.
"""

import contextlib
import datetime
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.coordination.processes import alive, read_record
from kafka2011.events import topics
from kafka2011.events.codec import decode
from kafka2011.events.windows import window_start
from kafka2011.services.frontend import synthetic
from kafka2011.services.frontend.synthetic import Activity
from tests.support.brokers import RunningBroker, start_broker
from tests.support.commands import RunningProcess, held_port, start_command
from tests.support.stored import (
    headers,
    reported_counts,
    stored_counts,
    stored_entries,
    stored_payloads,
)
from tests.support.waiting import wait_for_growth, wait_until
from tests.support.zookeeper import registry_at

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WINDOW_MS = 1000
LINE = '192.0.2.%d - - [17/May/2015:%02d:05:03 +0000] "GET /p/%d HTTP/1.1" %d %d "-" "agent"\n'


class Frontend:
    """Starts the frontend's process in `root`, again and again over the same data."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "access.log"

    def write_log(self, count: int) -> None:
        with self.log.open("w") as file:
            for n in range(count):
                file.write(LINE % (n % 199, n % 24, n, 200 if n % 9 else 404, n))

    def start(self, failpoints: str = "", **settings: object) -> RunningProcess:
        """With synthetic activity, unless `source` says otherwise."""
        named = {
            "process.name": "frontend-1",
            "data.dir": self.root / "frontend-1",
            "audit.window.ms": WINDOW_MS,
            "metrics.port": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        return start_command("frontend", named, self.root / "frontend.log", failpoints)

    def send_log(
        self, broker: RunningBroker, failpoints: str = "", **settings: object
    ) -> RunningProcess:
        settings = {"broker_list": broker.broker_list, **settings}
        return self.start(failpoints, source="access-log", input_path=self.log, **settings)

    def send_rest(self, broker: RunningBroker) -> None:
        """What is left of the log, to its end; then the broker stops."""
        with self.send_log(broker) as run:
            finish(run)
        assert broker.stop() == 0


@pytest.fixture
def frontend(tmp_path: Path) -> Frontend:
    return Frontend(tmp_path)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with start_broker(tmp_path) as running:
        yield running


def finish(run: RunningProcess) -> None:
    assert run.wait() == 0, run.log()


def repeats(event_count: int, *brokers: RunningBroker) -> int:
    """How many events are there more than once; every event is there, and counted once."""
    stored = stored_payloads([broker.log_dir for broker in brokers])
    found = headers(stored)
    assert len({header.guid for header in found}) == event_count
    reported = reported_counts(stored)
    there = stored_counts(stored, WINDOW_MS)
    missing = {cell: n - there[cell] for cell, n in reported.items() if n > there[cell]}
    assert not missing, f"reported and not there: {missing}"
    assert sum(reported.values()) == event_count
    return len(found) - event_count


def test_a_log_with_broken_lines_arrives_whole_and_a_second_start_sends_nothing(
    frontend: Frontend, broker: RunningBroker, tmp_path: Path
) -> None:
    frontend.write_log(2000)
    odd = [
        b"",
        b"\r",
        b"no log line",
        bytes(range(256)).replace(b"\n", b""),
        b"x" * 2_000_000,
        b'h - - [17/May/2015:10:05:03 +0000] "GET /' + b"y" * 2_000_000 + b' HTTP/1.1" 200 5',
        b'h - - [17/May/2015:10:05:03 +0000] "GET /last HTTP/1.1" 200 5 "r" "no end',
    ]
    with frontend.log.open("ab") as file:
        file.write(b"\n".join(odd))  # the last line has no end
    with frontend.send_log(broker) as run:
        finish(run)
    frontend.log.rename(tmp_path / "moved.log").rename(frontend.log)
    with frontend.send_log(broker) as run:
        finish(run)
        assert run.events("source_sent_before")
    assert broker.stop() == 0
    stored = stored_payloads([broker.log_dir])
    assert len(stored["access-log"]) == 2002
    unreadable = [decode(payload)[1] for payload in stored["access-log-unreadable"]]
    assert [(one["line_number"], one["length"], len(one["line"])) for one in unreadable] == [
        (2001, 0, 0),
        (2002, 0, 0),
        (2003, 11, 11),
        (2004, 255, 255),
        (2005, 2_000_000, 65536),
    ]
    assert stored_counts(stored, WINDOW_MS) == reported_counts(stored)


def test_a_log_that_turns_unreadable_is_sent_whole_and_ends_with_status_1_once(
    frontend: Frontend, broker: RunningBroker
) -> None:
    frontend.write_log(1000)
    with frontend.log.open("a") as file:
        file.write("no log line\n" * 1001)
    with frontend.send_log(broker) as run:
        assert run.wait() == 1, run.log()
        [complaint] = run.events("input_mostly_unreadable")
    assert complaint["detail"].startswith("only 1,000 of 2,001 lines of the input could be read")
    frontend.send_rest(broker)
    stored = stored_payloads([broker.log_dir])
    assert len(stored["access-log-unreadable"]) == 1001


def test_a_killed_broker_that_comes_back_costs_repeats_and_no_event(
    frontend: Frontend, tmp_path: Path
) -> None:
    frontend.write_log(20_000)
    held = tmp_path / "held"  # no barrier is answered, so that the frontend cannot end before
    held.touch()
    hold = {"KAFKA2011_FAILPOINTS": f"before_flush=hold:{held}"}

    def log_bytes() -> int:
        return sum(file.stat().st_size for file in broker.log_dir.rglob("*.kafka"))

    with contextlib.ExitStack() as stack:

        def start(port: int = 0) -> RunningBroker:
            return stack.enter_context(start_broker(tmp_path, port=port, environment=hold))

        broker = start()
        run = stack.enter_context(frontend.send_log(broker, rate=8000))
        for _ in range(2):
            wait_for_growth(log_bytes, 10_000, "the log grows", since=log_bytes())
            broker.kill()
            assert run.is_running
            broker = start(broker.port)
        held.unlink()
        finish(run)
        resent = run.events("finished")[0]["resent_sets"]
        assert broker.stop() == 0
    assert resent > 0
    assert repeats(20_000, broker) <= resent * 200


def test_a_frontend_killed_at_any_moment_goes_on_and_counts_everything_once(
    frontend: Frontend, broker: RunningBroker
) -> None:
    frontend.write_log(20_000)
    rng = random.Random(2011)
    for _ in range(4):
        with frontend.send_log(broker, rate=6000) as run:
            wait_until(lambda run=run: run.events("run_started") or not run.is_running, "it begins")
            if run.events("source_sent_before"):
                break  # the moments before were late ones, on a busy machine
            deadline = time.monotonic() + rng.uniform(0.05, 0.7)
            wait_until(lambda at=deadline: time.monotonic() > at, "the moment")
            run.kill()
    frontend.send_rest(broker)
    repeats(20_000, broker)


@pytest.mark.parametrize(
    ("failpoint", "may_repeat"),
    [
        ("counts_before_journal", True),
        ("counts_after_journal", False),  # nothing is on its way then
        ("counts_before_publish", True),
        ("counts_after_publish", False),
    ],
)
def test_a_frontend_that_dies_at_a_step_goes_on(
    frontend: Frontend, broker: RunningBroker, failpoint: str, may_repeat: bool
) -> None:
    frontend.write_log(8000)
    for _ in range(2):
        with frontend.send_log(broker, f"{failpoint}=exit:9", rate=8000) as run:
            assert run.wait() == 9, run.log()
    frontend.send_rest(broker)
    found = repeats(8000, broker)
    assert may_repeat or found == 0


def test_a_followed_log_arrives_through_rotation_truncation_and_kills(
    frontend: Frontend, broker: RunningBroker, tmp_path: Path
) -> None:
    written = 0

    def write(count: int) -> None:
        nonlocal written
        with frontend.log.open("a") as file:
            for n in range(written, written + count):
                file.write(LINE % (n % 199, n % 24, n, 200, n))
        written += count

    def arrived() -> None:
        def found() -> bool:
            stored = stored_payloads([broker.log_dir]).get("access-log", [])
            return len({header.guid for header in headers({"access-log": stored})}) == written

        wait_until(found, f"{written} lines are there")

    follow = {"input_follow": "true", "heartbeat_interval_ms": 50}
    write(1000)
    for turn in range(3):
        with frontend.send_log(broker, **follow) as run:
            arrived()
            write(1000)
            frontend.log.rename(tmp_path / f"access.log.{turn}")
            write(1000)
            run.kill()
        write(500)
        with frontend.send_log(broker, **follow) as run:
            arrived()
            frontend.log.write_text("")
            write(300)
            arrived()
            assert run.stop() == 0, run.log()
    assert broker.stop() == 0
    repeats(written, broker)
    lines = [decode(payload)[1] for payload in stored_payloads([broker.log_dir])["access-log"]]
    assert {line["path"] for line in lines} == {f"/p/{n}" for n in range(written)}


def test_sigterm_flushes_and_the_next_start_goes_on_without_a_repeat(
    frontend: Frontend, broker: RunningBroker, tmp_path: Path
) -> None:
    frontend.write_log(10_000)
    with frontend.send_log(broker, rate=500) as run:
        run.wait_for_event("run_started")
        wait_until((tmp_path / "frontend-1" / "progress.json").exists, "progress.json")
        assert run.stop() == 0, run.log()
        assert run.events("stopped")
    stored = stored_payloads([broker.log_dir])
    assert stored_counts(stored, WINDOW_MS) == reported_counts(stored)
    frontend.send_rest(broker)
    assert repeats(10_000, broker) == 0


def test_after_a_planned_stop_synthetic_activity_goes_on_from_now_without_a_repeat(
    frontend: Frontend, broker: RunningBroker, tmp_path: Path
) -> None:
    settings = {"rate": 1000, "message_count": 5000, "broker_list": broker.broker_list}
    with frontend.start(**settings) as run:
        wait_until((tmp_path / "frontend-1" / "progress.json").exists, "progress.json")
        assert run.stop() == 0, run.log()
    stopped_ms = time.time_ns() // 1_000_000
    # Four times frontend.batch.ms, which pass between batches, are no pause; a process can be
    # started in less.
    wait_until(lambda: time.time_ns() // 1_000_000 > stopped_ms + 500, "a pause")
    with frontend.start(**settings, catch_up_ms=0) as run:
        began = datetime.datetime.fromisoformat(run.wait_for_event("run_started")["timestamp"])
        finish(run)
    assert broker.stop() == 0
    assert repeats(5000, broker) == 0
    found = headers(stored_payloads([broker.log_dir]))
    began_ms = int(began.timestamp() * 1000)  # as events have it: the whole milliseconds
    assert [one.time_ms for one in found if stopped_ms < one.time_ms < began_ms] == []
    assert max(one.time_ms for one in found) > began_ms


def test_sigterm_while_no_broker_answers_ends_in_time_and_loses_nothing(
    frontend: Frontend, tmp_path: Path
) -> None:
    frontend.write_log(500)
    port = held_port()
    quick = {"connect_timeout_ms": 100, "frontend_stop_timeout_ms": 300}
    with frontend.start(
        source="access-log", input_path=frontend.log, broker_list=f"0:127.0.0.1:{port}", **quick
    ) as run:
        run.wait_for_event("send_failed")
        assert run.stop() == 1, run.log()
        assert run.events("delivery_failed")
    with start_broker(tmp_path, port=port) as broker:
        frontend.send_rest(broker)
    assert repeats(500, broker) == 0


@pytest.mark.parametrize(
    ("ends", "said_goodbye", "has_finished"),
    [("stopped", True, False), ("finished", True, True), ("failed", False, False)],
)
def test_how_it_ended_is_on_record(
    frontend: Frontend,
    tmp_path: Path,
    zk_connect: str,
    ends: str,
    *,
    said_goodbye: bool,
    has_finished: bool,
) -> None:
    """One that failed, or that Ctrl-C stopped, is not called done."""
    settings = {"rate": 100, "live_zk_connect": zk_connect, "frontend_stop_timeout_ms": 300}
    with registry_at(zk_connect) as registry, start_broker(tmp_path) as broker:
        with frontend.start(**settings, broker_list=broker.broker_list, message_count=300) as run:
            wait_until(lambda: alive(registry), "the process is registered")
            if ends == "failed":
                broker.kill()
                wait_until(lambda: run.events("send_failed"), "nothing can be sent")
            status = run.wait() if ends == "finished" else run.stop()
            assert status == (ends == "failed"), run.log()
        record = read_record(registry, "live", "frontend-1")
    assert (record.said_goodbye, record.has_finished) == (said_goodbye, has_finished)


def test_synthetic_activity_has_the_totals_that_were_known_before(
    frontend: Frontend, tmp_path: Path
) -> None:
    with start_broker(tmp_path, num_partitions=2) as broker:
        limits = {"seed": 7, "rate": 3000, "duration_ms": 2500, "catch_up_ms": -1}
        with frontend.start(**limits, broker_list=broker.broker_list) as run:
            finish(run)
        assert broker.stop() == 0
    stored = stored_payloads([broker.log_dir])
    start_ms = min(header.time_ms for header in headers(stored))
    there = stored_counts(stored, WINDOW_MS)
    counted = {(topic, window): count for (topic, window, _), count in there.items()}
    activity = Activity(7)
    assert counted == Counter(
        (activity.planned(number).topic, window_start(start_ms + number * 1000 // 3000, WINDOW_MS))
        for number in range(7500)
    )
    assert reported_counts(stored) == there
    assert {topic for topic in stored if topic != topics.AUDIT} == set(topics.ACTIVITY_TOPICS)


def test_through_zookeeper_the_events_go_to_every_partition_or_to_that_of_their_key(
    frontend: Frontend, tmp_path: Path, zk_connect: str
) -> None:
    frontend.write_log(20_000)
    with (
        start_broker(tmp_path, 1, zk_connect, num_partitions=2) as one,
        start_broker(tmp_path, 2, zk_connect, num_partitions=2) as two,
    ):
        with frontend.start(
            source="access-log", input_path=frontend.log, zk_connect=zk_connect
        ) as run:
            finish(run)
        with frontend.start(
            broker_list=one.broker_list,
            live_zk_connect=zk_connect,
            frontend_keyed="true",
            data_dir=tmp_path / "keyed",
            frontend_server="frontend-2",
            rate=6000,
            duration_ms=500,
        ) as run:
            finish(run)
            assert not run.events("keys_may_move"), run.log()
        assert one.stop() == two.stop() == 0
    assert repeats(23_000, one, two) == 0
    places = [(1, 0), (1, 1), (2, 0), (2, 1)]
    for topic in synthetic.KEYED_TOPICS:  # the first event of all is in its place already
        key = "author_id" if topic in (topics.LIKE, topics.COMMENT) else "member_id"
        for broker_id, broker in enumerate((one, two), 1):
            for entry in stored_entries(broker.log_dir, topic):
                member = decode(entry.payload)[1][key]
                assert places[member % 4] == (broker_id, entry.partition), (topic, member)
    sizes = [
        sum(file.stat().st_size for file in directory.glob("*.kafka"))
        for broker in (one, two)
        for directory in broker.log_dir.glob("access-log-*")
    ]
    assert len(sizes) == 4
    assert min(sizes) > 0


def test_behind_a_balancer_every_broker_gets_its_share(frontend: Frontend, tmp_path: Path) -> None:
    with start_broker(tmp_path, 1) as one, start_broker(tmp_path, 2) as two:
        routes = {"proxy.routes": f"127.0.0.1:0>127.0.0.1:{one.port}|127.0.0.1:{two.port}"}
        with start_command("proxy", routes, tmp_path / "proxy.log") as proxy:
            address = proxy.wait_for_event("serving")["address"]
            limits = {"rate": 6000, "duration_ms": 2000, "reconnect_interval": 5}
            with frontend.start(**limits, broker_list=f"0:{address}") as run:
                finish(run)
        assert one.stop() == two.stop() == 0
    assert repeats(12_000, one, two) == 0
    shares = [len(headers(stored_payloads([broker.log_dir]))) for broker in (one, two)]
    assert min(shares) > 12_000 // 4


def test_settings_that_do_not_fit_are_one_line_and_status_2(
    frontend: Frontend, tmp_path: Path
) -> None:
    with frontend.start() as run:
        assert run.wait() == 2
        assert "broker.list" in run.log()
    with frontend.start(
        source="access-log", input_path=tmp_path / "none", broker_list="0:127.0.0.1:1"
    ) as run:
        assert run.wait() == 2
        assert run.events("input_unreadable")
    assert not (tmp_path / "frontend-1" / "journal").exists()
