"""Which copy of a replica set's partition a recount reads, and that it reads no further than what
is confirmed. The files are those that a broker's own code writes."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka2011.broker.log import flushed_mark, replica_journal
from kafka2011.broker.log.flushed_mark import Mark, Marks
from kafka2011.broker.log.replica_journal import ReplicaIdentity, ReplicaJournal
from kafka2011.protocol.lineage import Lineage
from kafka2011.services.audit.recount.replica_copies import broker_of, in_sets, watermarks_in
from kafka2011.services.audit.recount.segment_files import LogDirectory
from kafka2011.services.audit.recount.sources import DiskSource
from tests.support.logs import entry

E = entry(b"hello")


def copy(
    root: Path,
    machine: str,
    watermark: int | None,
    *segments: bytes,
    start: int = 0,
    lineage: Lineage = (),
) -> Path:
    """A replica's directory with partition t-0."""
    path = root / machine / "broker-1" / "logs"
    (path / "t-0").mkdir(parents=True)
    for data in segments:
        (path / "t-0" / f"{start:020d}.kafka").write_bytes(data)
        start += len(data)
    identity = ReplicaIdentity(1, machine[-1])
    journal = ReplicaJournal(identity, 32 * "0", lineages={"t-0": lineage})
    (path / replica_journal.NAME).write_bytes(journal.to_bytes())
    if watermark is not None:
        marks = Marks({"t-0": Mark(start, 5, watermark)}, 7, has_watermarks=True)
        (path / flushed_mark.NAME).write_bytes(marks.to_bytes())
    return path


def payloads(source: DiskSource) -> list[bytes]:
    return [payload for read in source.read("t", print) for payload in read.payloads]


def source_of(*paths: Path) -> DiskSource:
    (one,) = in_sets([LogDirectory("live", str(path), path) for path in paths])
    assert one.name == "broker-1"
    return DiskSource(one)


@pytest.mark.parametrize("confirmed", range(4))
def test_nothing_above_the_watermark_is_read(tmp_path: Path, confirmed: int) -> None:
    path = copy(tmp_path, "a", confirmed * len(E), E + E, E + E)
    assert payloads(source_of(path)) == [b"hello"] * confirmed


@pytest.mark.parametrize("watermark", [None, len(E), 2 * len(E)])
def test_what_may_have_been_confirmed_and_is_not_read_is_unread_not_missing(
    tmp_path: Path, watermark: int | None
) -> None:
    """It was missing, and no note said that the file of the watermarks was damaged."""
    source = source_of(copy(tmp_path, "a", watermark, E + E))
    notes: list[str] = []
    assert source.unread("t") == ""
    for _ in source.read("t", notes.append):
        pass
    first = watermark or 0
    text = (
        f"live broker-1 t-0: from offset {first} to {2 * len(E)} is not read: whether that was "
        "confirmed is not known before its replica set has started again"
    )
    assert (notes, source.unread("t")) == (([text], text) if first < 2 * len(E) else ([], ""))


def test_the_copy_that_knows_most_as_confirmed_is_read(tmp_path: Path) -> None:
    """The longest has messages that were never confirmed, the others do not know of the last."""
    stray = entry(b"stray")
    paths = [
        copy(tmp_path, "a", 2 * len(E), E + E, stray + stray),
        copy(tmp_path, "b", 4 * len(E), E, E + E, start=len(E)),
        copy(tmp_path, "c", None, E + E + E),
    ]
    source = source_of(*paths)
    assert payloads(source) == [b"hello"] * 3
    assert next(iter(source.read("t", print))).is_behind_cut
    assert payloads(source_of(paths[2])) == [], "nothing is known of it"


ELECTED = len(E)  # the end of the copy that an unclean election made the only one
NEW = entry(b"newer")


@pytest.mark.parametrize("is_pruned", [False, True])
@pytest.mark.parametrize(
    ("after", "expected"),
    [((), [b"hello"]), ((NEW,), [b"hello", b"newer"]), ((NEW,) * 4, [b"hello", *4 * [b"newer"]])],
)
def test_a_copy_that_an_unclean_election_led_away_is_not_read(
    tmp_path: Path, after: tuple[bytes, ...], expected: list[bytes], *, is_pruned: bool
) -> None:
    """It has the higher watermark: what it had confirmed there is lost to the set."""
    before = ((7, 0),) if is_pruned else ((1, 0), (7, 0))
    dead = copy(tmp_path, "a", 3 * len(E), E + E + E, lineage=before)
    data = E + b"".join(after)
    branch = (*before, (8, ELECTED))
    leader = copy(tmp_path, "b", len(data), data, lineage=branch)
    joined = copy(tmp_path, "c", 0, b"", lineage=())
    assert payloads(source_of(dead, leader, joined)) == expected
    # A leader after it has not noted yet how much is confirmed; another copy of its branch has.
    late = copy(tmp_path, "d", 0, data, lineage=(*branch, (9, len(data))))
    assert payloads(source_of(dead, joined, late, leader)) == expected


def test_a_broker_that_is_no_replica_is_read_to_its_end(tmp_path: Path) -> None:
    path = copy(tmp_path, "a", len(E), E + E)
    (path / replica_journal.NAME).unlink()
    assert broker_of(path) is None
    (one,) = in_sets([LogDirectory("live", "broker-1", path)])
    assert payloads(DiskSource(one)) == [b"hello"] * 2


def test_sets_of_two_clusters_are_two(tmp_path: Path) -> None:
    path = copy(tmp_path, "a", len(E), E)
    one = LogDirectory("live", "x", path)
    assert len(in_sets([one, replace(one, tier="offline")])) == 2


def test_a_damaged_file_says_nothing(tmp_path: Path) -> None:
    path = copy(tmp_path, "a", len(E), E)
    marks = path / flushed_mark.NAME
    assert watermarks_in(path) == {"t-0": len(E)}
    marks.write_bytes(marks.read_bytes().replace(b"t-0 ", b"t-1 "))
    assert watermarks_in(path) == {}
    marks.write_bytes(Marks({"t-0": Mark(5, 5)}).to_bytes())
    assert watermarks_in(path) == {}, "of a broker that was alone"
    (path / replica_journal.NAME).write_text("{}")
    assert broker_of(path) is None
