"""What `kafka2011 dump-log` says about a segment, and the operator's cut."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kafka2011.broker.log import dump, flushed_mark, replica_journal
from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.cli.main import run
from tests.fuzz.mutation import mutated
from tests.support.logs import entry
from tests.unit.broker.data_directory import DataDirectory
from tests.vectors import vector

S1 = vector("S1")
GOOD = S1 + vector("V1") + vector("S4") + vector("S5")
DAMAGED = S1[:-1] + b"!"
END = 100 + len(GOOD)


@pytest.fixture
def segment(disk: DataDirectory) -> Path:
    return disk.put(GOOD, 100)


def command(*words: object) -> int:
    """The exit status of dump-log."""
    with pytest.raises(SystemExit) as ended:
        run(["dump-log", *map(str, words)])
    return int(ended.value.code or 0)


def test_whatever_is_in_a_segment_it_can_be_shown(segment: Path) -> None:
    """Mutated in any way: entries and a verdict, no exception, and no byte is shown twice."""
    for number in range(300):
        rng = random.Random(number)
        segment.write_bytes(mutated(rng, GOOD * rng.randint(1, 3), [GOOD]))
        found = dump.summary(segment)
        position = 100
        for one in dump.entries(segment):
            assert one.offset == position
            assert one.next_offset > position
            position = one.next_offset
            dump.as_text(one)
            json.dumps(dump.as_record(one, True))
        assert found.tail_offset <= position <= 100 + found.size_bytes


def test_a_directory_without_segments_is_said_to_have_none(
    segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert command(tmp_path / "empty") == 2
    assert command(segment.parent.parent) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"kafka2011 dump-log: no segment in {tmp_path}/empty"
    assert second.endswith("; give the partitions' directories in it")


def test_text_is_that_of_the_original(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(segment) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        f"Dumping {segment}",
        "Starting offset: 100",
        "offset: 100 isvalid: true payloadsize: 5 magic: 1 compresscodec: NoCompressionCodec",
        "payload:\thello",
        "offset: 115 isvalid: true payloadsize: 5 magic: 0 compresscodec: NoCompressionCodec",
        "payload:\thello",
    ]
    assert (
        "offset: 129 isvalid: true payloadsize: 47 magic: 1 compresscodec: GZIPCompressionCodec"
        in lines
    )
    assert lines[-2:] == [
        f"tail of the log is at offset: {END}",
        f"verdict: clean; 4 entries, {len(GOOD)} of {len(GOOD)} bytes",
    ]


def test_json_has_an_object_a_line(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--json", segment) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record.get("offset") for record in records] == [100, 115, 129, 186, None]
    assert records[0]["payload"] == b"hello".hex()
    assert (records[-1]["verdict"], records[-1]["tail_offset"]) == ("clean", END)


@pytest.mark.parametrize(("option", "left_out"), [("-noprint", "payload:"), ("--summary", "isval")])
def test_payloads_or_all_entries_are_left_out_on_request(
    segment: Path, capsys: pytest.CaptureFixture[str], option: str, left_out: str
) -> None:
    assert command(option, segment) == 0
    assert left_out not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "verdict", "valid_bytes"),
    [
        (GOOD + b"\0\0", "torn", len(GOOD)),
        (b"", "clean", 0),
        (DAMAGED + GOOD, "corrupt", 0),
        (b"\xff" * 100, "torn", 0),
    ],
)
def test_verdicts(segment: Path, data: bytes, verdict: str, valid_bytes: int) -> None:
    segment.write_bytes(data)
    found = dump.summary(segment)
    assert (found.verdict, found.valid_bytes) == (verdict, valid_bytes)
    assert command("--summary", segment) == (0 if verdict == "clean" else 1)


@pytest.mark.parametrize(
    ("name", "verdict"), [("broker.log", "not a log"), (f"{0:020}.kafka", "torn")]
)
def test_a_file_of_another_kind_is_no_torn_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, verdict: str
) -> None:
    text = tmp_path / name
    text.write_text("a line of text\nanother\n")
    assert command(text) == 1
    assert f"verdict: {verdict} (" in capsys.readouterr().out


def test_a_damaged_entry_is_shown_and_what_follows_too(segment: Path) -> None:
    segment.write_bytes(DAMAGED + S1)
    assert [one.is_valid for one in dump.entries(segment)] == [False, True]


@pytest.mark.parametrize("read_bytes", [4, 5, 64, 500, 10_000])
def test_entries_larger_than_one_read(
    segment: Path, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    sizes = [0, 10, 1000, 5, 300, 2]
    segment.write_bytes(b"".join(entry(bytes(size)) for size in sizes))
    monkeypatch.setattr(dump, "READ_BYTES", read_bytes)
    assert [len(one.payload) for one in dump.entries(segment)] == sizes


@pytest.mark.parametrize(
    ("behind", "shown"), [(S1, [False, True]), (b"", [False]), (b"\0", [])], ids=repr
)
def test_a_large_damaged_entry_is_shown_if_its_length_is_right(
    segment: Path, monkeypatch: pytest.MonkeyPatch, behind: bytes, shown: list[bool]
) -> None:
    """Else a flipped bit of a length would have all of a segment in memory at once."""
    monkeypatch.setattr(dump, "READ_BYTES", 100)
    segment.write_bytes(entry(bytes(1000))[:-1] + b"!" + behind)
    assert [one.is_valid for one in dump.entries(segment)] == shown


def test_directory_means_its_segments(
    disk: DataDirectory, segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk.put(S1, END)
    segment.with_name("notes.txt").write_text("x")
    assert command("--summary", segment.parent) == 0
    assert capsys.readouterr().out.count("verdict: clean") == 2


def test_operator_cuts_what_recovery_must_not(disk: DataDirectory, segment: Path) -> None:
    segment.write_bytes(GOOD + DAMAGED + S1)
    assert command("--truncate-corrupt", segment) == 0
    assert segment.read_bytes() == GOOD
    assert disk.quarantined() == [DAMAGED + S1]
    assert disk.log().high_watermark == END
    disk.close()
    assert dump.truncate_corrupt(segment) is None


@pytest.mark.parametrize(
    ("left", "flushed_bytes", "is_whole"),
    [
        pytest.param(GOOD + DAMAGED + S1, 0, False, id="entries behind the damage"),
        pytest.param(GOOD, END + 1, False, id="shorter than it was flushed"),
        pytest.param(GOOD + S1[:-1], END + 1, False, id="torn below what was flushed"),
        pytest.param(GOOD + S1[:-1], END, True, id="a write that did not finish"),
        pytest.param(GOOD, END, True, id="nothing to cut"),
    ],
)
def test_a_replica_that_loses_by_a_cut_what_it_may_have_confirmed_is_not_whole(
    disk: DataDirectory, segment: Path, left: bytes, flushed_bytes: int, is_whole: bool
) -> None:
    files = FileLayer()
    identity = replica_journal.ReplicaIdentity(1, "b")
    journal = replica_journal.begin(files, disk.root, identity, lambda: bytes(16))
    replica_journal.write(files, disk.root, replace(journal, accepted=7, starts=3))
    marks = flushed_mark.Marks({segment.parent.name: flushed_mark.Mark(flushed_bytes, 0)})
    flushed_mark.write(files, disk.root, marks)
    segment.write_bytes(left)
    dump.truncate_corrupt(segment)
    assert segment.read_bytes() == GOOD
    found = replica_journal.begin(files, disk.root, identity, lambda: bytes(16))
    assert found == replace(journal, accepted=7, starts=3, whole=is_whole)


def test_operator_cannot_cut_under_a_broker_or_in_the_middle(
    disk: DataDirectory, segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = disk.put(S1, END)
    with pytest.raises(DataDirectoryError, match="not the newest"):
        dump.truncate_corrupt(segment)
    disk.open()
    assert command("--truncate-corrupt", later) == 1
    assert "in use by another broker" in capsys.readouterr().err


def test_operator_can_cut_nothing_but_a_segment(
    disk: DataDirectory, segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "broker.log"
    text.write_text("a line\n")
    for path in (text, segment.parent):
        assert command("--truncate-corrupt", path) == 1
        assert f"{path} is not a segment: name the file" in capsys.readouterr().err
    assert text.read_text() == "a line\n"
