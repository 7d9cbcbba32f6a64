"""Whole lives of files in memory, with crashes of the tailer, and its limits."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka2011.producer.tail.messages import (
    Cursor,
    FileId,
    Position,
    decode_positions,
    encode_positions,
)
from kafka2011.producer.tail.tailer import Collected, Tailer


class MemoryFile:
    def __init__(self, inode: int, content: bytearray) -> None:
        self.id = FileId(1, inode)
        self.content = content
        self.names = 1

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.content[offset : offset + size])

    def size(self) -> int:
        return len(self.content)

    def is_deleted(self) -> bool:
        return not self.names

    def close(self) -> None:
        pass


class MemoryFiles:
    """A directory with the file `log`; the pattern is `log*`, so that `old` is out of sight.

    Files named in `trouble` cannot be opened; with `is_blind` no renamed file can be looked for.
    """

    def __init__(self, content: bytes = b"") -> None:
        self.names: dict[str, MemoryFile] = {}
        self.trouble: set[str] = set()
        self.is_blind = False
        self._inodes = 0
        self.create("log", content)

    def create(self, name: str, content: bytes = b"") -> None:
        self._inodes += 1
        self.names[name] = MemoryFile(self._inodes, bytearray(content))

    def append(self, content: bytes, name: str = "log") -> None:
        self.names[name].content += content

    def scan(self) -> dict[FileId, str]:
        return {file.id: name for name, file in self.names.items() if name.startswith("log")}

    def open(self, path: str) -> MemoryFile:
        if path in self.trouble:
            raise OSError(24, "Too many open files")
        if path not in self.names:
            raise FileNotFoundError(path)
        return self.names[path]

    def renamed(self, file: FileId, path: str) -> str | None:
        if self.is_blind:
            raise OSError(24, "Too many open files")
        return next((name for name, one in self.names.items() if one.id == file), None)


def new_tailer(files: MemoryFiles, **settings: Any) -> Tailer:
    defaults = {"line_bytes_max": 100, "gone_wait_s": 0, "now_s": lambda: 0.0}
    return Tailer(files, **{**defaults, **settings})


class Life:
    """Files, a tailer with its stored positions, and what arrived.

    The methods with a number are the steps of `test_every_line_arrives_and_in_order`.
    """

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.stored: list[Position] = []
        self.arrived: list[bytes] = []
        self.written: list[bytes] = []  # whole lines, ended
        self.unended = b""
        self.now_s = 0.0
        self.copies = 0
        self.crash()

    # What writers do.

    def append(self, count: int) -> None:
        for _ in range(count):
            line = self.unended + b"line %06d" % len(self.written)
            self.files.append(line[len(self.unended) :] + b"\n")
            self.written.append(line)
            self.unended = b""

    def append_half(self, _: int = 0) -> None:
        if not self.unended:
            self.unended = b"half "
            self.files.append(self.unended)

    def rename(self, _: int) -> None:
        """Each older file takes the next name; `log.3` goes on as `old`, out of sight."""
        names = self.files.names
        for older, newer in (("old", "log.3"), ("log.3", "log.2"), ("log.2", "log.1")):
            if newer in names and (older != "old" or self._is_durable(newer)):
                names[older] = names.pop(newer)
            elif newer in names:
                return  # what was not read yet may not be overwritten by this test
        names["log.1"] = names.pop("log")
        self.unended = b""
        self.files.create("log")

    def copy_and_truncate(self, _: int = 0) -> None:
        self.copies += 1
        self.files.create(f"log.copy{self.copies}", bytes(self.files.names["log"].content))
        self.files.names["log"].content.clear()
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

    def crash(self) -> None:
        self.tailer = new_tailer(
            self.files,
            gone_wait_s=2,
            now_s=lambda: self.now_s,
            resume=decode_positions(encode_positions(self.stored)),
        )


STEPS = ["append", "append_half", "copy_and_truncate", "rename", "round", "round_and_crash"]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 40)), min_size=4, max_size=25))
def test_every_line_arrives_and_in_order(steps) -> None:
    life = Life()
    for name, number in steps:
        getattr(life, name)(number)
    quiet = 0
    while quiet < 3:  # a file that is gone, or begun anew, takes some looks
        quiet = 0 if life.round().parts else quiet + 1
        life.now_s += 5
    assert set(life.written) <= set(life.arrived)
    if not life.copies:  # a copy's lines are in two files
        first = {line: at for at, line in reversed(list(enumerate(life.arrived)))}
        for one in life.files.names.values():
            whole = bytes(one.content).split(b"\n")[:-1]
            arrivals = [first[line] for line in whole]
            assert arrivals == sorted(arrivals)
    for message in set(life.arrived) - set(life.written):
        assert message in (b"half ", b"half") or any(
            line.endswith(message) or line.startswith(message) for line in life.written
        )


def test_a_file_renamed_out_of_sight_before_the_next_look_is_read_to_its_end() -> None:
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
    life.copy_and_truncate()
    life.append(20)
    life.round()
    life.round()
    assert set(life.written) == set(life.arrived)
    assert life.tailer.stats.truncations == 1


def test_an_unended_line_goes_out_when_its_file_is_gone_and_quiet() -> None:
    life = Life()
    life.append(2)
    life.append_half()
    life.round()
    life.files.create("log")
    life.round()
    assert life.arrived == life.written
    life.now_s += 5
    life.round()
    assert life.arrived == [*life.written, b"half "]
    assert life.tailer.stats.finished == 1


@pytest.mark.parametrize("content", [b"job done\n", b"job done\nand more\n"])
def test_a_new_file_with_the_number_of_a_deleted_one_is_read_from_its_start(content: bytes) -> None:
    """It began as the old one does: as much of it as that had was passed over."""
    files = MemoryFiles(b"job done\n")
    tailer = new_tailer(files)
    assert tailer.collect().parts == [("log", [b"job done"])]
    files.names["log"].names = 0
    del files.names["log"]
    for _ in range(2):
        assert not tailer.collect().parts
    assert tailer.stats.finished == 1
    files.names["log"] = MemoryFile(1, bytearray(content))
    assert tailer.collect().parts == [("log", content.splitlines())]


def test_from_end_passes_over_what_is_there_but_not_over_what_comes() -> None:
    files = MemoryFiles(b"old\n" * 1000 + b"ha")
    tailer = new_tailer(files, from_end=True)
    assert tailer.collect().parts == []
    files.append(b"lf\n")
    files.create("log.new", b"whole\n")
    assert dict(tailer.collect().parts) == {"log": [b"half"], "log.new": [b"whole"]}


@pytest.mark.parametrize("has_positions", [True, False])
def test_from_end_is_for_the_first_run_and_what_came_between_runs_is_read(
    has_positions: bool,
) -> None:
    files = MemoryFiles(b"old\n")
    first = new_tailer(files, from_end=True)
    assert first.collect().parts == []
    files.append(b"one\n")
    files.names["old"] = files.names.pop("log")
    files.create("log", b"two\n")
    stored = first.positions() if has_positions else []  # of a run that found no file
    second = new_tailer(files, from_end=True, resume=stored)
    parts = {"old": [b"one"]} if has_positions else {}
    assert dict(second.collect().parts) == {**parts, "log": [b"two"]}


def test_a_look_at_the_files_gives_their_positions_before_anything_is_read() -> None:
    files = MemoryFiles(b"old\nha")
    tailer = new_tailer(files, from_end=True)
    tailer.look()
    stored = tailer.positions()
    files.append(b"lf\n")
    assert tailer.collect().parts == [("log", [b"half"])]
    assert new_tailer(files, resume=stored).collect().parts == [("log", [b"half"])]


OLD = b"old\n" * 100_000


@pytest.mark.parametrize(
    ("content", "rest"),
    [
        (OLD + b"x" * 69 + b"\n" + b"y" * 30, b"y" * 30 + b"."),
        (OLD + b"y" * 30, b"y" * 30 + b"."),
        (b"", b"."),
        (OLD + b"x\n", b"."),
        (OLD + b"x\n" + b"y" * 5000, b"."),
    ],
    ids=["some windows back", "at once", "empty", "at a line's end", "in a line above the limit"],
)
def test_from_end_reads_only_the_last_line_of_a_large_file(monkeypatch, content, rest) -> None:
    monkeypatch.setattr("kafka2011.producer.tail.tailer.READ_BYTES", 10)
    reads: list[int] = []
    real_read = MemoryFile.read

    def read(file: MemoryFile, offset: int, size: int) -> bytes:
        reads.append(size)
        return real_read(file, offset, size)

    monkeypatch.setattr(MemoryFile, "read", read)
    files = MemoryFiles(content)
    tailer = new_tailer(files, from_end=True)
    assert tailer.collect().parts == []
    assert sum(reads) < 2000
    files.append(b".\n")
    rounds = [tailer.collect().parts for _ in range(20)]
    assert [one for parts in rounds for _, some in parts for one in some] == [rest]
    assert tailer.stats.truncations == 0


@pytest.mark.parametrize("name", ["log", "old"])
@pytest.mark.parametrize("is_blind", [False, True])
def test_a_file_that_cannot_be_opened_at_first_keeps_its_position(name, is_blind) -> None:
    files = MemoryFiles(b"one\ntwo\n")
    first = new_tailer(files, gone_wait_s=1)
    first.collect()
    stored = first.positions()
    files.names[name] = files.names.pop("log")  # `old` is out of the pattern's sight
    files.trouble, files.is_blind = {name}, is_blind
    second = new_tailer(files, gone_wait_s=1, resume=stored)
    for _ in range(2):
        assert second.collect().parts == []
        assert second.positions() == stored
    files.trouble, files.is_blind = set(), False
    files.append(b"three\n", name)
    assert [some for _, some in second.collect().parts] == [[b"three"]]


def test_from_end_a_file_that_cannot_be_opened_at_first_begins_at_its_end_all_the_same() -> None:
    files = MemoryFiles(b"old\n")
    files.trouble = {"log"}
    tailer = new_tailer(files, from_end=True)
    assert tailer.collect().parts == []
    files.trouble = set()
    assert tailer.collect().parts == []
    files.append(b"new\n")
    assert tailer.collect().parts == [("log", [b"new"])]


def test_from_end_files_that_wait_to_be_followed_begin_at_their_end_in_the_next_run_too() -> None:
    files = MemoryFiles(b"old\n")
    files.create("log.1", b"old\n")
    first = new_tailer(files, from_end=True, files_max=1, finished_max=0)
    first.collect()
    assert first.file_count == 1
    for name in ("log", "log.1"):
        files.append(b"new\n", name)
    second = new_tailer(files, from_end=True, resume=first.positions())
    assert dict(second.collect().parts) == {"log": [b"new"], "log.1": [b"new"]}


def test_files_that_were_finished_and_deleted_are_logged_in_one_line(caplog) -> None:
    gone = [Cursor(9).position(FileId(1, 1000 + n), f"log.{n}") for n in range(30)]
    tailer = new_tailer(MemoryFiles(), resume=gone)
    for _ in range(3):
        tailer.collect()
    (line,) = [line for line in caplog.messages if "gone" in line]
    assert "count=30" in line
    assert [one.path for one in tailer.positions()] == ["log"]


def test_a_file_that_is_renamed_keeps_its_key_also_in_the_next_run() -> None:
    files = MemoryFiles(b"one\n")
    first = new_tailer(files)
    assert first.collect().keys == ["log"]
    files.names["log.1"] = files.names.pop("log")
    files.append(b"two\n", "log.1")
    found = first.collect()
    assert (found.parts, found.keys) == ([("log.1", [b"two"])], ["log"])
    second = new_tailer(files, resume=decode_positions(encode_positions(first.positions())))
    files.append(b"three\n", "log.1")
    files.create("log", b"four\n")
    found = second.collect()
    assert dict(found.parts) == {"log.1": [b"three"], "log": [b"four"]}
    assert found.keys == ["log", "log"]
    files.names["log.1"].content[:] = b"anew\n"  # it is another file under this name
    assert {key for _ in range(2) for key in second.collect().keys} == {"log.1"}


def test_more_files_than_allowed_wait_for_their_turn() -> None:
    files = MemoryFiles()
    for number in range(5):
        files.create(f"log.{number}", b"%d\n" % number)
    tailer = new_tailer(files, files_max=3)
    assert len(tailer.collect().parts) == 2  # and the empty `log`
    for name in ("log", "log.0", "log.1"):
        del files.names[name]
    tailer.collect()
    assert {path for path, _ in tailer.collect().parts} == {"log.2", "log.3", "log.4"}


def test_a_round_is_bounded_and_files_take_turns(monkeypatch) -> None:
    monkeypatch.setattr("kafka2011.producer.tail.tailer.READ_BYTES", 1000)
    monkeypatch.setattr("kafka2011.producer.tail.tailer.ROUND_BYTES", 1500)
    files = MemoryFiles()
    names = [f"log.{number}" for number in range(4)]
    for name in names:
        files.create(name, b"x" * 9 + b"\n" * 1000)
    tailer = new_tailer(files)
    rounds = [tailer.collect() for _ in range(8)]
    assert max(found.size for found in rounds) <= 2500
    assert {path for found in rounds for path, _ in found.parts} == set(names)
