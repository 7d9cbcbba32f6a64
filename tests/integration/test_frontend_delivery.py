"""The frontend's process against real brokers: every event arrives, and the counts say so.

After any crash the stored messages may be more than the reported ones (extra), never fewer.
"""

import os
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from kafka2011.events import topics
from kafka2011.events.codec import decode
from kafka2011.services.frontend.synthetic import expected_counts
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.brokers import RunningBroker, start_broker
from tests.support.commands import RunningProcess, start_command
from tests.support.scripted_server import ScriptedBroker
from tests.support.stored import headers, reported_counts, stored_counts, stored_payloads
from tests.support.waiting import wait_for_growth, wait_until

pytestmark = pytest.mark.integration

WINDOW_MS = 1000
LINE = '192.0.2.%d - - [17/May/2015:%02d:05:03 +0000] "GET /p/%d HTTP/1.1" %d %d "-" "agent"\n'


def write_log(path: Path, count: int) -> None:
    with path.open("w") as file:
        for n in range(count):
            file.write(LINE % (n % 199, n % 24, n, 200 if n % 9 else 404, n))


def frontend(tmp_path: Path, failpoints: str = "", **settings: object) -> RunningProcess:
    found = {name.replace("_", "."): value for name, value in settings.items()}
    return start_command(
        "frontend",
        {
            "process.name": "frontend-1",
            "data.dir": tmp_path / "frontend-1",
            "audit.window.ms": WINDOW_MS,
            "metrics.port": 0,
            **found,
        },
        tmp_path / "frontend.log",
        failpoints,
    )


def access_log(
    tmp_path: Path, broker: RunningBroker, failpoints: str = "", **settings: object
) -> RunningProcess:
    return frontend(
        tmp_path,
        failpoints,
        source="access-log",
        input_path=tmp_path / "access.log",
        broker_list=f"0:127.0.0.1:{broker.port}",
        **settings,
    )


def log_bytes(broker: RunningBroker) -> int:
    return sum(file.stat().st_size for file in broker.log_dir.rglob("*.kafka"))


def finished(run: RunningProcess, timeout_s: float = 90) -> None:
    assert run.wait(timeout_s) == 0, run.log()


def check_nothing_missing(log_dirs: list[Path], event_count: int) -> int:
    """Every event is there and counted once; returns how many are there more than once."""
    stored = stored_payloads(log_dirs)
    found = headers(stored)
    assert len({header.guid for header in found}) == event_count
    reported = reported_counts(stored)
    there = stored_counts(stored, WINDOW_MS)
    missing = {cell: n - there[cell] for cell, n in reported.items() if n > there[cell]}
    assert not missing, f"reported and not there: {missing}"
    assert sum(reported.values()) == event_count
    return len(found) - event_count


def test_a_log_with_broken_lines_arrives_whole_and_a_second_start_sends_nothing(
    tmp_path: Path,
) -> None:
    write_log(tmp_path / "access.log", 2000)
    odd = [
        b"",
        b"\r",
        b"no log line",
        bytes(range(256)).replace(b"\n", b""),
        b"x" * 2_000_000,
        b'h - - [17/May/2015:10:05:03 +0000] "GET /' + b"y" * 2_000_000 + b' HTTP/1.1" 200 5',
        b'h - - [17/May/2015:10:05:03 +0000] "GET /last HTTP/1.1" 200 5 "r" "no end',
    ]
    with (tmp_path / "access.log").open("ab") as file:
        file.write(b"\n".join(odd))  # the last line has no end
    with start_broker(tmp_path) as broker:
        with access_log(tmp_path, broker) as run:
            finished(run)
        (tmp_path / "access.log").rename(tmp_path / "moved.log")
        (tmp_path / "moved.log").rename(tmp_path / "access.log")
        with access_log(tmp_path, broker) as run:
            finished(run)
            assert run.events("source_sent_before")
        assert broker.stop() == 0
    stored = stored_payloads([broker.log_dir])
    assert len(stored["access-log"]) == 2002
    unreadable = [decode(payload)[1] for payload in stored["access-log-unreadable"]]
    found = {
        record["line_number"]: (record["length"], len(record["line"])) for record in unreadable
    }
    assert found == {
        2001: (0, 0),
        2002: (0, 0),
        2003: (11, 11),
        2004: (255, 255),
        2005: (2_000_000, 65536),
    }
    assert stored_counts(stored, WINDOW_MS) == reported_counts(stored)


def test_a_killed_broker_that_comes_back_costs_repeats_and_no_event(tmp_path: Path) -> None:
    write_log(tmp_path / "access.log", 40_000)
    broker = start_broker(tmp_path)
    with access_log(tmp_path, broker, rate=8000) as run:
        for _ in range(2):
            wait_for_growth(partial(log_bytes, broker), 200_000, "the log grows")
            port = broker.port
            broker.kill()
            assert run.is_running
            broker = start_broker(tmp_path, port=port)
        finished(run)
        resent = run.events("finished")[0]["resent_sets"]
    with broker:
        assert broker.stop() == 0
    repeats = check_nothing_missing([broker.log_dir], 40_000)
    assert resent > 0
    assert repeats <= resent * 200


def test_a_frontend_killed_at_any_moment_goes_on_and_counts_everything_once(
    tmp_path: Path,
) -> None:
    write_log(tmp_path / "access.log", 20_000)
    rng = random.Random(2011)
    with start_broker(tmp_path) as broker:
        for _ in range(4):
            with access_log(tmp_path, broker, rate=6000) as run:
                run.wait_for_event("run")
                deadline = time.monotonic() + rng.uniform(0.05, 0.7)
                wait_until(lambda at=deadline: time.monotonic() > at, "the moment")
                run.kill()
        with access_log(tmp_path, broker) as run:
            finished(run)
        assert broker.stop() == 0
    check_nothing_missing([broker.log_dir], 20_000)


@pytest.mark.parametrize(
    "failpoint",
    [
        "frontend_before_journal",
        "frontend_after_journal",
        "frontend_before_publish",
        "frontend_after_publish",
    ],
)
def test_a_frontend_that_dies_at_a_step_goes_on(tmp_path: Path, failpoint: str) -> None:
    write_log(tmp_path / "access.log", 8000)
    with start_broker(tmp_path) as broker:
        for _ in range(2):
            with access_log(tmp_path, broker, f"{failpoint}=exit:9", rate=8000) as run:
                assert run.wait(60) == 9, run.log()
        with access_log(tmp_path, broker) as run:
            finished(run)
        assert broker.stop() == 0
    repeats = check_nothing_missing([broker.log_dir], 8000)
    if failpoint in ("frontend_after_journal", "frontend_after_publish"):
        assert repeats == 0  # nothing was on its way then


def test_sigterm_flushes_and_the_next_start_goes_on_without_a_repeat(tmp_path: Path) -> None:
    write_log(tmp_path / "access.log", 6000)
    with start_broker(tmp_path) as broker:
        with access_log(tmp_path, broker, rate=4000) as run:
            run.wait_for_event("run")
            progress = tmp_path / "frontend-1" / "progress.json"
            wait_until(progress.exists, "progress.json")
            assert run.stop() == 0, run.log()
            assert run.events("stopped")
        stored = stored_payloads([broker.log_dir])
        assert stored_counts(stored, WINDOW_MS) == reported_counts(stored)
        with access_log(tmp_path, broker) as run:
            finished(run)
        assert broker.stop() == 0
    assert check_nothing_missing([broker.log_dir], 6000) == 0


def test_sigterm_while_no_broker_answers_ends_in_time_and_loses_nothing(tmp_path: Path) -> None:
    write_log(tmp_path / "access.log", 500)
    with ScriptedBroker() as gone:
        port = gone.address[1]
    with start_broker(tmp_path, port=port) as broker:
        broker.kill()
        with access_log(
            tmp_path, broker, connect_timeout_ms=100, frontend_stop_timeout_ms=300
        ) as run:
            run.wait_for_event("send_failed")
            assert run.stop() == 1, run.log()
            assert run.events("delivery_failed")
    with start_broker(tmp_path, port=port) as broker:
        with access_log(tmp_path, broker) as run:
            finished(run)
        assert broker.stop() == 0
    assert check_nothing_missing([broker.log_dir], 500) == 0


def test_synthetic_activity_has_the_totals_that_were_known_before(tmp_path: Path) -> None:
    with start_broker(tmp_path, num_partitions=2) as broker:
        with frontend(
            tmp_path,
            seed=7,
            rate=3000,
            duration_ms=2500,
            broker_list=f"0:127.0.0.1:{broker.port}",
        ) as run:
            finished(run)
        assert broker.stop() == 0
    stored = stored_payloads([broker.log_dir])
    start_ms = min(header.time_ms for header in headers(stored))
    expected = expected_counts(7, 3000, start_ms, 7500, WINDOW_MS)
    counted = {
        (topic, window): n for (topic, window, _), n in stored_counts(stored, WINDOW_MS).items()
    }
    assert counted == expected
    assert reported_counts(stored) == stored_counts(stored, WINDOW_MS)
    assert {topic for topic in stored if topic != topics.AUDIT} == set(topics.ACTIVITY_TOPICS)


def test_through_zookeeper_the_events_go_to_every_partition(
    tmp_path: Path, zookeeper: ZooKeeperServer, zk_connect: str
) -> None:
    write_log(tmp_path / "access.log", 20_000)
    with (
        start_broker(tmp_path, 1, zk_connect, num_partitions=2) as one,
        start_broker(tmp_path, 2, zk_connect, num_partitions=2) as two,
    ):
        with frontend(
            tmp_path,
            source="access-log",
            input_path=tmp_path / "access.log",
            zk_connect=zk_connect,
        ) as run:
            finished(run)
        assert one.stop() == two.stop() == 0
    assert check_nothing_missing([one.log_dir, two.log_dir], 20_000) == 0
    sizes = Counter(
        {
            str(directory): sum(f.stat().st_size for f in directory.glob("*.kafka"))
            for broker in (one, two)
            for directory in broker.log_dir.glob("access-log-*")
        }
    )
    assert len(sizes) == 4
    assert min(sizes.values()) > 0


def test_settings_that_do_not_fit_are_one_line_and_status_2(tmp_path: Path) -> None:
    with frontend(tmp_path) as run:
        assert run.wait(30) == 2
        assert "broker.list" in run.log()
    with frontend(
        tmp_path, source="access-log", input_path=tmp_path / "none", broker_list="0:127.0.0.1:1"
    ) as run:
        assert run.wait(30) == 2
        assert run.events("input_unreadable")
    assert not os.path.exists(tmp_path / "frontend-1" / "journal")


def test_behind_a_balancer_every_broker_gets_its_share(tmp_path: Path) -> None:
    with start_broker(tmp_path, 1) as one, start_broker(tmp_path, 2) as two:
        targets = f"127.0.0.1:{one.port}|127.0.0.1:{two.port}"
        with start_command(
            "proxy", {"proxy.routes": f"127.0.0.1:0>{targets}"}, tmp_path / "proxy.log"
        ) as proxy:
            address = proxy.wait_for_event("serving")["address"]
            with frontend(
                tmp_path,
                rate=3000,
                duration_ms=4000,
                broker_list=f"0:{address}",
                reconnect_time_interval_ms=200,
            ) as run:
                finished(run)
        assert one.stop() == two.stop() == 0
    assert check_nothing_missing([one.log_dir, two.log_dir], 12_000) == 0
    shares = [len(headers(stored_payloads([broker.log_dir]))) for broker in (one, two)]
    assert min(shares) > 12_000 // 4
