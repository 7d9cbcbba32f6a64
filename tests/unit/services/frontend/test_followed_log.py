"""A followed log through rotation, truncation and crashes: every line, each with one guid."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.events.codec import decode
from kafka2011.services.frontend.followed_log import (
    GONE_WAIT_S,
    FollowedLogSource,
    followed_position,
    is_same_log,
    plain_position,
)
from kafka2011.services.frontend.lines import LINE_BYTES_MAX
from kafka2011.services.frontend.sources import AccessLogSource
from tests.support.clock import ManualClock
from tests.unit.producer.tail.test_tailer import MemoryFiles

RUN = bytes(range(8))
NAMES = {"server": "s", "service": "v"}
LINE = b'h - - [17/May/2015:10:05:03 +0000] "GET /%d HTTP/1.1" 200 5'


class Frontend:
    """Follows `log`. What it sent is durable or not; the journal has the position of what is."""

    def __init__(self, files: Any = None, path: Path = Path("log"), **more: Any) -> None:
        self.files = files
        self.path = path
        self.now_s = 0.0
        self.clock = ManualClock(1000)
        self.more = more
        self.journal: Any = None
        self.sent: list[tuple[bytes, bytes]] = []  # (guid, line) of every event, also those lost
        self.start()

    def start(self) -> None:
        self.source = FollowedLogSource(
            self.path,
            **{"run_id": RUN, "clock": self.clock, **NAMES, **self.more},
            position=json.loads(json.dumps(self.journal)),
            files=self.files,
            now_s=lambda: self.now_s,
        )

    def round(self, is_durable: bool = True) -> int:
        """A batch; returns the number of its events, or 1 where there is more to do."""
        batch = self.source.next_batch()
        for _, _, payload in batch.events:
            event = decode(payload)[1]
            text = event["path"].encode() if "path" in event else event["line"]
            self.sent.append((event["header"]["guid"], text))
        if is_durable or batch.is_to_be_stored:
            self.journal = batch.position
        self.now_s += GONE_WAIT_S / 2
        return len(batch.events) or (not batch.wait_ms)

    def crash(self) -> None:
        """What was sent since the last confirmation is at the brokers; the journal has it not."""
        for _ in range(2):
            self.round(is_durable=False)
        self.start()

    def wait(self) -> None:
        """A retry while the brokers are away; it may end in a crash."""
        self.journal = self.source.with_new_files(json.loads(json.dumps(self.journal)))

    def catch_up(self) -> list[bytes]:
        """All lines that were ever sent, each once for its guid."""
        quiet = 0
        while quiet < 5:
            quiet = 0 if self.round() else quiet + 1
        return self.lines()

    def lines(self) -> list[bytes]:
        by_guid: dict[bytes, set[bytes]] = defaultdict(set)
        for guid, line in self.sent:
            by_guid[guid].add(line)
        assert all(len(lines) == 1 for lines in by_guid.values()), "one guid for two lines"
        return sorted(line for lines in by_guid.values() for line in lines)


class Log(MemoryFiles):
    """Numbered lines; `old` is a name that the pattern does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def scan(self) -> Any:
        return {file.id: name for name, file in self.names.items() if name == "log"}

    def write(self, count: int) -> None:
        for _ in range(count):
            self.append(LINE % self.count + b"\n")
            self.count += 1

    def rename(self, _: int = 0) -> None:
        self.names[f"old{len(self.names)}"] = self.names.pop("log")
        self.create("log")

    def truncate(self, _: int = 0) -> None:
        self.names["log"].content.clear()

    def wanted(self) -> list[bytes]:
        return sorted(b"/%d" % number for number in range(self.count))


def test_lines_behind_a_rotation_or_a_truncation_arrive() -> None:
    log = Log()
    frontend = Frontend(log)
    for change in (log.rename, log.truncate, log.rename):
        log.write(3)
        assert frontend.catch_up() == log.wanted()
        change()
    log.write(2)
    assert frontend.catch_up() == log.wanted()
    assert len(frontend.sent) == log.count


STEPS = ["write", "rename", "rename_in_outage", "truncate", "round", "crash"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 5)), max_size=20))
def test_no_line_is_lost_and_no_guid_is_of_two_lines(steps: list[tuple[str, int]]) -> None:
    log = Log()
    frontend = Frontend(log)
    for name, number in steps:
        if name == "truncate":
            frontend.catch_up()  # what was not read before a truncation is gone
        elif name == "rename":
            for _ in range(2):  # a file that was never seen cannot be found
                frontend.round(is_durable=False)
        elif name == "rename_in_outage":
            frontend.wait()
            if number == 1:
                frontend.start()
            name = "rename"
        if name in ("round", "crash"):
            getattr(frontend, name)()
        else:
            getattr(log, name)(number)
    assert frontend.catch_up() == log.wanted()


def test_a_line_that_is_sent_again_has_the_same_guid() -> None:
    log = Log()
    frontend = Frontend(log)
    log.write(2)
    frontend.crash()
    log.rename()
    log.write(2)
    frontend.crash()
    assert frontend.catch_up() == log.wanted()
    assert len({guid for guid, _ in frontend.sent}) == log.count < len(frontend.sent)


def test_files_that_come_and_go_while_nothing_can_be_sent_are_read() -> None:
    log = Log()
    frontend = Frontend(log)
    log.write(2)
    frontend.round()
    for _ in range(3):
        log.rename()
        log.write(2)
        known = len(frontend.journal["files"])
        frontend.wait()
        assert len(frontend.journal["files"]) == known + 1
    log.rename()
    frontend.start()
    assert frontend.catch_up() == log.wanted()


def test_lines_are_those_of_the_file_and_an_unended_one_waits() -> None:
    files = MemoryFiles(b"no log line\r\n\n" + LINE % 7)
    frontend = Frontend(files)
    assert frontend.catch_up() == [b"", b"no log line"]
    files.append(b"\r\n")
    assert frontend.catch_up() == [b"", b"/7", b"no log line"]
    assert {guid[:8] for guid, _ in frontend.sent} == {RUN}
    assert sorted(int.from_bytes(guid[8:]) for guid, _ in frontend.sent) == [1, 2, 3]


def test_a_line_above_the_limit_is_several_events() -> None:
    frontend = Frontend(MemoryFiles(b"x" * (LINE_BYTES_MAX + 5) + b"\n" + LINE % 1 + b"\n"))
    frontend.catch_up()
    assert len(frontend.sent) == 3


def test_a_file_that_is_away_is_reported_and_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "access[1].log"
    frontend = Frontend(path=path)
    for _ in range(3):
        frontend.round()
    assert [path.name in line for line in caplog.messages if "input_missing" in line] == [True]
    path.write_bytes(LINE % 1 + b"\n")
    (tmp_path / "access1.log").write_bytes(LINE % 2 + b"\n")
    assert frontend.catch_up() == [b"/1"]
    frontend.source.close()


def test_a_rate_paces_the_batches() -> None:
    log = Log()
    log.write(30)
    frontend = Frontend(log, rate=10)
    assert len(frontend.catch_up()) == 30
    log.write(1)
    for waited_ms, count in ((2900, 30), (200, 31)):
        frontend.clock.advance(waited_ms)
        assert len(frontend.catch_up()) == count


# --- between following and reading to the end -----------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "access.log"
    path.write_bytes(b"".join(LINE % number + b"\n" for number in range(600)))
    return path


@pytest.mark.parametrize("change", ["none", "rotated", "truncated", "rewritten"])
def test_a_run_that_did_not_follow_is_followed_from_where_it_was(log: Path, change: str) -> None:
    plain = AccessLogSource(log, run_id=RUN, clock=ManualClock(), **NAMES)
    source = AccessLogSource.descriptor(log)
    batch = plain.next_batch()
    assert batch is not None
    plain.close()
    wanted = range(500, 601)
    if change == "rotated":
        log.rename(log.with_name("access.log.1"))
    elif change == "truncated":
        wanted = range(600, 601)
        log.write_bytes(b"")
    elif change == "rewritten":
        wanted = range(601)
        log.write_bytes(b"".join(b"x" + LINE % number + b"\n" for number in range(600)))
    with log.open("ab") as file:
        file.write(LINE % 600 + b"\n")
    assert is_same_log(source, AccessLogSource.descriptor(log))
    frontend = Frontend(path=log)
    frontend.source.close()
    frontend.journal = followed_position(batch.position, source, RUN.hex())
    frontend.start()
    assert frontend.catch_up() == sorted(b"/%d" % number for number in wanted)
    if change == "none":
        assert sorted(guid for guid, _ in frontend.sent) == [
            RUN + number.to_bytes(8) for number in range(501, 602)
        ]
    frontend.source.close()


def test_a_followed_file_is_read_to_its_end_from_where_it_was(log: Path) -> None:
    frontend = Frontend(path=log)
    frontend.catch_up()
    frontend.source.close()
    size = log.stat().st_size
    source = AccessLogSource.descriptor(log)
    position = plain_position(frontend.journal, source, RUN.hex())
    assert position[:2] == [size, 600]
    assert AccessLogSource.can_continue(log, position)
    for other, run in (({**source, "inode": -1}, RUN.hex()), (source, "00" * 8)):
        position = plain_position(frontend.journal, other, run)
        assert not AccessLogSource.can_continue(log, position)
    position = plain_position(frontend.journal, source, RUN.hex())
    log.write_bytes(log.read_bytes().upper())
    assert not AccessLogSource.can_continue(log, position)


def test_a_plain_position_of_a_version_that_kept_no_anchor_is_followed(log: Path) -> None:
    source = AccessLogSource.descriptor(log)
    frontend = Frontend(path=log)
    frontend.source.close()
    end = len(b"".join(LINE % number + b"\n" for number in range(500)))
    frontend.journal = followed_position([end, 500], source, RUN.hex())
    frontend.start()
    assert frontend.catch_up() == sorted(b"/%d" % number for number in range(500, 600))
    frontend.source.close()
