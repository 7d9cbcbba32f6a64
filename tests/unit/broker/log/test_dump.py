"""What `kafka2011 dump-log` says about a segment, and the operator's cut."""

import json
import random
from pathlib import Path

import pytest

from kafka2011.broker.log import dump
from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.cli.main import run
from tests.fuzz.mutation import mutated
from tests.support.logs import entry, manager
from tests.vectors import vector

GOOD = vector("S1") + vector("V1") + vector("S4") + vector("S5")
NAME = "00000000000000000100.kafka"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "t-0" / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(GOOD)
    return path


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


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        run(["dump-log", *words])
    return int(ended.value.code or 0)


def test_text_is_that_of_the_original(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(str(segment)) == 0
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
    assert lines[-2] == f"tail of the log is at offset: {100 + len(GOOD)}"
    assert lines[-1] == f"verdict: clean; 4 entries, {len(GOOD)} of {len(GOOD)} bytes"


def test_json_has_an_object_a_line(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--json", str(segment)) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record.get("offset") for record in records] == [100, 115, 129, 186, None]
    assert records[0]["payload"] == b"hello".hex()
    assert records[-1]["verdict"] == "clean"
    assert records[-1]["tail_offset"] == 100 + len(GOOD)


def test_payloads_are_left_out_on_request(
    segment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("-noprint", str(segment)) == 0
    assert "payload:" not in capsys.readouterr().out
    assert command("--summary", str(segment)) == 0
    assert "isvalid" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "verdict", "valid_bytes"),
    [
        (GOOD + b"\0\0", "torn", len(GOOD)),
        (b"", "clean", 0),
        (vector("S1")[:-1] + b"!" + GOOD, "corrupt", 0),
        (b"\xff" * 100, "torn", 0),
    ],
)
def test_verdicts(segment: Path, data: bytes, verdict: str, valid_bytes: int) -> None:
    segment.write_bytes(data)
    found = dump.summary(segment)
    assert (found.verdict, found.valid_bytes) == (verdict, valid_bytes)
    assert command("--summary", str(segment)) == (0 if verdict == "clean" else 1)


def test_a_damaged_entry_is_shown_and_what_follows_too(segment: Path) -> None:
    segment.write_bytes(vector("S1")[:-1] + b"!" + vector("S1"))
    assert [one.is_valid for one in dump.entries(segment)] == [False, True]


def test_entries_larger_than_one_read(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [0, 10, 1000, 5, 300, 2]
    segment.write_bytes(b"".join(entry(bytes(size)) for size in sizes))
    for read_bytes in (1, 5, 64, 500, 10_000):
        monkeypatch.setattr(dump, "READ_BYTES", max(read_bytes, 4))
        assert [len(one.payload) for one in dump.entries(segment)] == sizes


def test_directory_means_its_segments(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (segment.parent / f"{100 + len(GOOD):020d}.kafka").write_bytes(vector("S1"))
    (segment.parent / "notes.txt").write_text("x")
    assert command("--summary", str(segment.parent)) == 0
    assert capsys.readouterr().out.count("verdict: clean") == 2


def test_operator_cuts_what_recovery_must_not(segment: Path, tmp_path: Path) -> None:
    damaged = GOOD + vector("S1")[:-1] + b"!" + vector("S1")
    segment.write_bytes(damaged)
    assert command("--truncate-corrupt", str(segment)) == 0
    assert segment.read_bytes() == GOOD
    (copy,) = (tmp_path / "logs-quarantine").iterdir()
    assert copy.read_bytes() == damaged[len(GOOD) :]
    logs = manager(tmp_path / "logs")
    assert logs.logs["t", 0].high_watermark == 100 + len(GOOD)
    logs.close()
    assert dump.truncate_corrupt(segment) is None


def test_operator_cannot_cut_under_a_broker_or_in_the_middle(
    segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = segment.parent / f"{100 + len(GOOD):020d}.kafka"
    later.write_bytes(vector("S1"))
    with pytest.raises(DataDirectoryError, match="not the newest"):
        dump.truncate_corrupt(segment)
    logs = manager(tmp_path / "logs")
    assert command("--truncate-corrupt", str(later)) == 1
    assert "in use by another broker" in capsys.readouterr().err
    logs.close()
