"""The tailer: its arithmetic, and whole lives of files against it, with crashes."""

import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.producer.tail.app import TailRun, batches
from kafka2011.producer.tail.config import TailConfig
from kafka2011.producer.tail.files import Files, StateFile
from kafka2011.producer.tail.messages import (
    BadState,
    Cursor,
    FileId,
    Position,
    decode_positions,
    encode_positions,
)
from kafka2011.producer.tail.tailer import Collected, Tailer
from kafka2011.protocol.message_set import payloads
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until


def read_all(cursor: Cursor, content: bytes, step: int = 7) -> list[bytes]:
    """What a cursor makes of a file with this content, read in small steps."""
    found: list[bytes] = []
    while True:
        offset, size = cursor.window(step)
        messages = cursor.accept(content[offset : offset + size])
        if messages is None:
            found += cursor.restart()
            continue
        found += messages
        if offset + size > len(content):
            return found


# --- lines ----------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)), st.integers(1, 50))
def test_lines_come_out_whole_however_they_are_read(lines: list[bytes], step: int) -> None:
    content = b"".join(line + b"\n" for line in lines)
    cursor = Cursor(1000)
    assert read_all(cursor, content + b"unended", step) == lines
    assert cursor.offset == len(content)
    assert cursor.finish() == [b"unended"]
    assert cursor.offset == len(content) + 7


@given(st.binary(min_size=1, max_size=100), st.integers(1, 10), st.integers(1, 30))
def test_a_long_line_comes_in_bounded_pieces(line: bytes, limit: int, step: int) -> None:
    cursor = Cursor(limit)
    found = read_all(cursor, line, step) + cursor.finish()
    assert all(len(piece) <= limit for piece in found)
    assert b"".join(found) == line.replace(b"\n", b"")
    assert cursor.read_offset - cursor.offset <= limit


def test_other_content_at_the_position_is_noticed() -> None:
    cursor = Cursor(1000)
    assert read_all(cursor, b"one\ntwo\nthr") == [b"one", b"two"]
    for other in (b"", b"ONE\n", b"ONE\nTWO\nTHREE\nFOUR\n"):
        offset, size = cursor.window(100)
        assert cursor.accept(other[offset : offset + size]) is None
    assert cursor.restart() == [b"thr"]
    assert read_all(cursor, b"ONE\nTWO\n") == [b"ONE", b"TWO"]


def test_a_position_survives_the_process_and_recognises_its_file() -> None:
    content = b"".join(b"line %d\n" % number for number in range(100)) + b"half"
    first = Cursor(1000)
    read_all(first, content)
    stored = decode_positions(encode_positions([first.position(FileId(1, 2), "a.log")]))
    second = Cursor(1000)
    second.resume(stored[0])
    assert read_all(second, content + b" and half\n") == [b"half and half"]
    third = Cursor(1000)
    third.resume(stored[0])
    assert third.position(FileId(1, 2), "a.log") == stored[0]  # not looked at yet
    assert read_all(third, b"X" * len(content) + b"\n") == [b"X" * len(content)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version": 9, "files": []}',
        b'{"version": 1, "files": [{"device": 1}]}',
        b'{"version": 1, "files": [{"device": 1, "inode": 1, "path": "a", "offset": 3,'
        b' "anchor_bytes": 4, "anchor_sha256": ""}]}',
    ],
)
def test_a_damaged_state_is_refused(data: bytes) -> None:
    with pytest.raises(BadState):
        decode_positions(data)


def test_sets_are_bounded_in_number_and_bytes() -> None:
    messages = [b"x"] * 1201 + [bytes(600), bytes(600), b"y"]
    found = list(batches(messages, 1000))
    assert [len(some) for some in found] == [500, 500, 202, 2]
    assert [one for some in found for one in some] == messages


# --- whole lives ----------------------------------------------------------------------------------


class MemoryFile:
    def __init__(self, inode: int, content: bytearray) -> None:
        self.id = FileId(1, inode)
        self.content = content

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.content[offset : offset + size])

    def size(self) -> int:
        return len(self.content)

    def close(self) -> None:
        pass


class MemoryFiles:
    """A directory; the pattern is `log*`, so that `old` is out of sight."""

    def __init__(self) -> None:
        self.names: dict[str, MemoryFile] = {}
        self._inodes = 0
        self.create("log")

    def create(self, name: str, content: bytes = b"") -> None:
        self._inodes += 1
        self.names[name] = MemoryFile(self._inodes, bytearray(content))

    def scan(self) -> dict[FileId, str]:
        return {file.id: name for name, file in self.names.items() if name.startswith("log")}

    def open(self, path: str) -> MemoryFile:
        if path not in self.names:
            raise FileNotFoundError(path)
        return self.names[path]

    def renamed(self, file: FileId, path: str) -> str | None:
        return next((name for name, one in self.names.items() if one.id == file), None)


class Life:
    """Files, a tailer with its stored positions, and what arrived."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.stored: list[Position] = []
        self.arrived: list[bytes] = []
        self.written: list[bytes] = []  # whole lines, ended
        self.unended = b""
        self.now_s = 0.0
        self.rotations = 0
        self.is_copied = False
        self.tailer = self._tailer()

    def _tailer(self) -> Tailer:
        return Tailer(
            self.files,
            line_bytes_max=100,
            gone_wait_s=2,
            now_s=lambda: self.now_s,
            resume=decode_positions(encode_positions(self.stored)),
        )

    # What writers do.

    def append(self, count: int) -> None:
        for _ in range(count):
            line = self.unended + b"line %06d" % len(self.written)
            self.files.names["log"].content += line[len(self.unended) :] + b"\n"
            self.written.append(line)
            self.unended = b""

    def append_half(self, _: int) -> None:
        if not self.unended:
            self.unended = b"half "
            self.files.names["log"].content += self.unended

    def rename(self, _: int) -> None:
        """Each older file takes the next name; `log.3` goes on as `old`, out of sight."""
        names = self.files.names
        for older, newer in (("old", "log.3"), ("log.3", "log.2"), ("log.2", "log.1")):
            if newer in names and (older != "old" or self._is_durable(newer)):
                names[older] = names.pop(newer)
            elif newer in names:
                return  # what was not read yet may not be overwritten by this test
        names["log.1"] = names.pop("log")
        self._end_line()
        self.files.create("log")

    def copy_and_truncate(self, _: int) -> None:
        self.is_copied = True
        self.rotations += 1
        self.files.create(f"log.copy{self.rotations}", bytes(self.files.names["log"].content))
        self.files.names["log"].content.clear()
        self._end_line()

    def _end_line(self) -> None:
        self.unended = b""

    def _is_durable(self, name: str) -> bool:
        file = self.files.names[name]
        ends = {one.file: one.offset for one in self.stored}
        return ends.get(file.id, -1) >= file.content.rfind(b"\n") + 1

    # What the tailer does.

    def round(self, _: int = 0) -> Collected:
        self.now_s += 1
        found = self.tailer.collect()
        for _, messages in found.parts:
            self.arrived += messages
        self.stored = self.tailer.positions()
        return found

    def round_and_crash(self, sent: int) -> None:
        """It dies while it sends: some arrived, and nothing is stored."""
        found = self.tailer.collect()
        everything = [one for _, messages in found.parts for one in messages]
        self.arrived += everything[:sent]
        self.crash()

    def crash(self, _: int = 0) -> None:
        self.tailer = self._tailer()


STEPS: dict[str, Callable[[Life, int], Any]] = {
    "append": Life.append,
    "append_half": Life.append_half,
    "rename": Life.rename,
    "copy_and_truncate": Life.copy_and_truncate,
    "round": Life.round,
    "round_and_crash": Life.round_and_crash,
}


steps_taken = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 40))


@settings(max_examples=300)
@given(st.lists(steps_taken, min_size=4, max_size=25))
def test_every_line_arrives_and_in_order(steps: list[tuple[str, int]]) -> None:
    life = Life()
    for name, number in steps:
        STEPS[name](life, number)
    quiet = 0
    while quiet < 3:  # a file that is gone, or begun anew, takes some looks
        quiet = 0 if life.round().parts else quiet + 1
        life.now_s += 5
    assert set(life.written) <= set(life.arrived)
    if not life.is_copied:  # a copy's lines are in two files
        first = {line: at for at, line in reversed(list(enumerate(life.arrived)))}
        for one in life.files.names.values():
            whole = bytes(one.content).split(b"\n")[:-1]
            arrivals = [first[line] for line in whole]
            assert arrivals == sorted(arrivals)
    for message in set(life.arrived) - set(life.written):
        assert message in (b"half ", b"half") or any(
            line.endswith(message) or line.startswith(message) for line in life.written
        )


def test_a_file_renamed_out_of_sight_while_nobody_looked_is_read_to_its_end() -> None:
    life = Life()
    life.append(5)
    life.round()
    life.append(5)
    life.files.names["old"] = life.files.names.pop("log")
    life.files.create("log")
    life.crash()
    life.append(5)
    life.round()
    assert life.arrived.count(life.written[4]) == 1
    assert sorted(life.arrived) == life.written


def test_a_file_written_anew_beyond_the_position_begins_at_its_start() -> None:
    life = Life()
    life.append(5)
    life.round()
    life.copy_and_truncate(0)
    life.append(20)
    life.round()
    life.round()
    assert set(life.written) == set(life.arrived)
    assert life.tailer.stats.truncations == 1


def test_an_unended_line_goes_out_when_its_file_is_gone_and_quiet() -> None:
    life = Life()
    life.append(2)
    life.append_half(0)
    life.round()
    del life.files.names["log"]
    life.files.create("log")
    life.round()
    assert life.arrived == life.written
    life.now_s += 5
    life.round()
    assert life.arrived == [*life.written, b"half "]
    assert life.tailer.stats.finished == 1


def test_from_end_passes_over_what_is_there_but_not_over_what_comes() -> None:
    files = MemoryFiles()
    files.names["log"].content += b"old\n" * 1000 + b"ha"
    tailer = Tailer(files, line_bytes_max=100, gone_wait_s=1, now_s=lambda: 0.0, from_end=True)
    assert tailer.collect().parts == []
    files.names["log"].content += b"lf\n"
    files.create("log.new", b"whole\n")
    found = tailer.collect()
    assert dict(found.parts) == {"log": [b"half"], "log.new": [b"whole"]}


@pytest.mark.parametrize(
    ("content", "rest"),
    [
        (
            b"x" * 69 + b"\n" + b"y" * 30,
            b"y" * 30 + b".",
        ),  # the last line feed is some windows back
        (b"y" * 30, b"y" * 30 + b"."),
        (b"", b"."),
        (b"x\n", b"."),
        (b"x\n" + b"y" * 5000, b"."),  # within a line that is too long already
    ],
)
def test_from_end_reads_only_the_last_line_of_a_large_file(
    monkeypatch: pytest.MonkeyPatch, content: bytes, rest: bytes
) -> None:
    monkeypatch.setattr("kafka2011.producer.tail.tailer.READ_BYTES", 10)
    files = MemoryFiles()
    files.names["log"].content += b"old\n" * 100_000 + content if content else b""
    reads: list[int] = []
    real_read = MemoryFile.read
    monkeypatch.setattr(
        MemoryFile, "read", lambda *given: reads.append(given[2]) or real_read(*given)
    )
    tailer = Tailer(files, line_bytes_max=100, gone_wait_s=1, now_s=lambda: 0.0, from_end=True)
    assert tailer.collect().parts == []
    assert sum(reads) < 2000
    files.names["log"].content += b".\n"
    arrived: list[bytes] = []
    for _ in range(20):
        arrived += [one for _, some in tailer.collect().parts for one in some]
    assert arrived == [rest]
    assert tailer.stats.truncations == 0


class Unopened(MemoryFiles):
    """Files of which some cannot be opened, or looked for, now."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: set[str] = set()
        self.is_blind = False

    def open(self, path: str) -> MemoryFile:
        if path in self.trouble:
            raise OSError(24, "Too many open files")
        return super().open(path)

    def renamed(self, file: FileId, path: str) -> str | None:
        if self.is_blind:
            raise OSError(24, "Too many open files")
        return super().renamed(file, path)


@pytest.mark.parametrize("name", ["log", "old"])
@pytest.mark.parametrize("is_blind", [False, True])
def test_a_file_that_cannot_be_opened_at_first_keeps_its_position(
    name: str, is_blind: bool
) -> None:
    files = Unopened()
    files.names["log"].content += b"one\ntwo\n"
    kinds: dict[str, Any] = {"line_bytes_max": 100, "gone_wait_s": 1, "now_s": lambda: 0.0}
    first = Tailer(files, **kinds)
    first.collect()
    stored = first.positions()
    files.names[name] = files.names.pop("log")  # `old` is out of the pattern's sight
    files.trouble, files.is_blind = {name}, is_blind
    second = Tailer(files, resume=stored, **kinds)
    for _ in range(2):
        assert second.collect().parts == []
        assert second.positions() == stored
    files.trouble, files.is_blind = set(), False
    files.names[name].content += b"three\n"
    assert [some for _, some in second.collect().parts] == [[b"three"]]


def test_from_end_a_file_that_cannot_be_opened_at_first_begins_at_its_end_all_the_same() -> None:
    files = Unopened()
    files.names["log"].content += b"old\n"
    files.trouble = {"log"}
    tailer = Tailer(files, line_bytes_max=9, gone_wait_s=0, now_s=lambda: 0.0, from_end=True)
    assert tailer.collect().parts == []
    files.trouble = set()
    assert tailer.collect().parts == []
    files.names["log"].content += b"new\n"
    assert tailer.collect().parts == [("log", [b"new"])]


def test_files_that_were_finished_and_deleted_are_told_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = [Cursor(9).position(FileId(1, 1000 + n), f"log.{n}") for n in range(30)]
    files = MemoryFiles()
    tailer = Tailer(files, line_bytes_max=9, gone_wait_s=0, now_s=lambda: 0.0, resume=gone)
    for _ in range(3):
        tailer.collect()
    told = [line for line in caplog.messages if "gone" in line]
    assert len(told) == 1
    assert "count=30" in told[0]
    assert [one.path for one in tailer.positions()] == ["log"]


def test_more_files_than_allowed_wait_for_their_turn() -> None:
    files = MemoryFiles()
    for number in range(5):
        files.create(f"log.{number}", b"%d\n" % number)
    tailer = Tailer(files, line_bytes_max=9, gone_wait_s=0, now_s=lambda: 0.0, files_max=3)
    assert len(tailer.collect().parts) == 2  # and the empty `log`
    for name in ("log", "log.0", "log.1"):
        del files.names[name]
    tailer.collect()
    assert {path for path, _ in tailer.collect().parts} == {"log.2", "log.3", "log.4"}


def test_a_round_is_bounded_and_files_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka2011.producer.tail.tailer.READ_BYTES", 1000)
    monkeypatch.setattr("kafka2011.producer.tail.tailer.ROUND_BYTES", 1500)
    files = MemoryFiles()
    for number in range(4):
        files.create(f"log.{number}", b"x" * 9 + b"\n" * 1000)
    tailer = Tailer(files, line_bytes_max=100, gone_wait_s=0, now_s=lambda: 0.0)
    seen = set()
    for _ in range(8):
        found = tailer.collect()
        assert found.size <= 2500
        seen |= {path for path, _ in found.parts}
    assert seen == {f"log.{number}" for number in range(4)}


# --- real files -----------------------------------------------------------------------------------


def test_patterns_find_regular_files_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"x")
    (tmp_path / "b[1].log").write_bytes(b"x")
    (tmp_path / "dir.log").mkdir()
    (tmp_path / "link.log").symlink_to(tmp_path / "a.log")
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    files = Files([f"{tmp_path}/*.log", f"{tmp_path}/a.log", f"{tmp_path}/b[1].log"])
    assert sorted(files.scan().values()) == [f"{tmp_path}/a.log", f"{tmp_path}/b[1].log"]
    (file,) = [key for key, path in files.scan().items() if path.endswith("a.log")]
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    assert files.renamed(file, f"{tmp_path}/a.log") == f"{tmp_path}/a.log.1"
    assert files.renamed(file, f"{tmp_path}/none/a.log") is None
    with pytest.raises(OSError, match="too long"):
        files.renamed(file, f"{tmp_path}/{'x' * 300}/a.log")
    with pytest.raises(OSError, match="regular"):
        files.open(str(tmp_path / "dir.log"))


def test_one_process_has_the_state_file_and_it_is_replaced_whole(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "deep" / "state")
    assert state.read() == []
    with pytest.raises(BadState, match="in use"):
        StateFile(tmp_path / "deep" / "state")
    position = Cursor(10).position(FileId(1, 2), "a\udcff.log")
    state.write([position])
    state.close()
    again = StateFile(tmp_path / "deep" / "state")
    assert again.read() == [position]
    again.path.write_bytes(b"{")
    with pytest.raises(BadState, match="move it away"):
        again.read()
    again.close()


def test_a_run_keeps_what_it_read_until_a_broker_takes_it(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntwo\nhal")
    with ScriptedBroker() as broker:
        broker.refused.add("t")
        config = TailConfig(
            topic="t",
            broker_list=((0, broker.address),),
            state_file=tmp_path / "state",
            retry_max_ms=20,
            poll_ms=5,
            metrics_port=0,
        )
        stop = threading.Event()
        run = TailRun(config, [f"{tmp_path}/*.log"], stop)
        assert run._metrics is not None
        page = f"http://127.0.0.1:{run._metrics.port}/metrics"

        def number(name: str) -> float:
            text = urllib.request.urlopen(page, timeout=10).read().decode()
            (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
            return float(line.split()[1])

        statuses: list[int] = []
        thread = threading.Thread(target=lambda: statuses.append(run.run(until_end=False)))
        thread.start()
        wait_until(lambda: number("kafka2011_tail_failed_attempts_total") >= 2, "it tries again")
        assert number("kafka2011_tail_unsent_lines") == 2
        with (tmp_path / "a.log").open("ab") as log:
            log.write(b"f\n")
        broker.refused.clear()
        wait_until(lambda: number("kafka2011_tail_lines_total") == 3, "all are durable")
        assert number("kafka2011_tail_behind_bytes") == 0
        stop.set()
        thread.join(30)
        assert statuses == [0]
        assert payloads(bytes(broker.logs["t", -1]))[-3:] == [b"one", b"two", b"half"]
    (stored,) = decode_positions((tmp_path / "state").read_bytes())
    assert stored.offset == len(b"one\ntwo\nhalf\n")


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="the brokers are not named"):
        TailConfig(topic="t")
    with pytest.raises(ValueError, match="topic"):
        TailConfig(topic="a/b", zk_connect="h:1")
    config = TailConfig(topic="t", zk_connect="h:1", max_message_bytes=100)
    assert config.line_bytes_max == 100
