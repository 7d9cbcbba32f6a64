"""What a replica remembers of itself: identity, starts, epochs; and what is refused at a start."""

import errno
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.broker.log import replica_journal
from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.broker.log.replica_journal import (
    NAME,
    ReplicaIdentity,
    ReplicaJournal,
    counted,
)
from tests.support.logs import entry
from tests.unit.broker.data_directory import DataDirectory, append_and_flush, some

A = ReplicaIdentity(1, "a")
E = entry(b"hello")
LINEAGES = {"t-0": ((1, 0), (4, 80)), "a topic-1": (), "\udcff-0": ((2, 0),)}


def journal(disk: DataDirectory) -> ReplicaJournal:
    """The journal after a start of replica `a` of broker 1."""
    return some(disk.open(replica=A).journal)


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 2**63))).map(tuple),
    ),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_what_is_written_is_read(
    lineages: dict[str, replica_journal.Lineage], number: int, whole: bool
) -> None:
    written = ReplicaJournal(A, "5f" * 16, number, number + 1, whole, lineages)
    assert ReplicaJournal.from_bytes(written.to_bytes()) == written


def test_every_changed_byte_and_every_cut_is_noticed() -> None:
    data = ReplicaJournal(A, "5f" * 16, 3, 7, lineages=LINEAGES).to_bytes()
    for position in range(len(data)):
        for damaged in (data[:position], data[:position] + b"\x01" + data[position + 1 :]):
            with pytest.raises(ValueError, match="damaged"):
                ReplicaJournal.from_bytes(damaged)


def test_a_directory_keeps_its_id(disk: DataDirectory) -> None:
    first = journal(disk)
    assert (len(first.directory), first.starts, first.whole) == (32, 0, True)
    disk.crash()
    assert journal(disk) == first


def test_an_older_copy_of_a_directory_is_one_however_often_it_is_started() -> None:
    last = ReplicaJournal(A, "5f" * 16, 7)
    assert counted(last, 7) == replace(last, starts=8)
    assert counted(last, 6).whole  # the number came to the disk, and not to ZooKeeper
    older = counted(replace(last, starts=6), 7)
    assert (older.starts, older.whole) == (8, False)
    assert not counted(older, 8).whole


def test_the_data_of_a_standalone_broker_becomes_a_replica_s(disk: DataDirectory) -> None:
    append_and_flush(disk.log(), E, E)
    log = disk.log(replica=A)
    assert (log.flushed_end, log.high_watermark) == (2 * len(E), 0)
    assert some(disk.manager.journal).lineages == {}


def test_a_broker_that_is_no_replica_refuses_the_directory(disk: DataDirectory) -> None:
    journal(disk)
    with pytest.raises(DataDirectoryError, match=r"belongs to a replica .* replica\.name") as error:
        disk.open()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("identity", [ReplicaIdentity(1, "b"), ReplicaIdentity(2, "a")])
def test_another_replica_refuses_the_directory(
    disk: DataDirectory, identity: ReplicaIdentity
) -> None:
    journal(disk)
    with pytest.raises(DataDirectoryError, match="is of replica 'a' of broker 1, not of"):
        disk.open(replica=identity)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-30], "it is damaged"),
        (lambda data: b"", "it is damaged"),
        (lambda data: sealed(data.replace(b'"version": 1', b'"version": 2')), "its version is 2"),
        (lambda data: sealed(data.replace(b"accepted", b"excepted")), "not a journal's"),
        (lambda data: sealed(data.replace(b'"lineages": {', b'"lineages": {"t-0": 1')), "not a"),
    ],
)
def test_a_journal_that_cannot_be_read_is_refused_and_left(
    disk: DataDirectory, change: Callable[[bytes], bytes], reason: str
) -> None:
    journal(disk)
    disk.close()
    path = disk.root / NAME
    path.write_bytes(change(path.read_bytes()))
    left = path.read_bytes()
    with pytest.raises(DataDirectoryError, match=reason) as error:
        journal(disk)
    assert str(path) in str(error.value)
    assert path.read_bytes() == left


def sealed(data: bytes) -> bytes:
    """With a checksum that fits."""
    content = data.rpartition(b"\ncrc ")[0]
    return content + f"\ncrc {replica_journal.zlib.crc32(content):08x}\n".encode()


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_journal_that_could_not_be_replaced_stands(disk: DataDirectory, nth: int) -> None:
    """Whichever operation fails, and whatever power loss follows: the old one, or the new one."""
    old = journal(disk)
    new = ReplicaJournal(A, old.directory, 1, 9, False, LINEAGES)
    for seed in range(8):
        replica_journal.write(disk.files, disk.root, old)
        disk.fail(errno.EIO, nth=nth, within=NAME)
        try:
            replica_journal.write(disk.files, disk.root, new)
            allowed = [new]
        except OSError:
            allowed = [old, new]
        disk.files.fault = None
        disk.manager.unlock()
        disk.files.power_loss(random.Random(seed))
        assert ReplicaJournal.from_bytes((disk.root / NAME).read_bytes()) in allowed
    disk.drop()


@pytest.mark.parametrize(
    "lose",
    [
        lambda disk: [path.unlink() for path in (disk.root / "t-0").iterdir()],
        lambda disk: (disk.root / "t-0" / f"{0:020d}.kafka").write_bytes(E),
        lambda disk: (disk.root / ".kafka2011_flushed").unlink(),
        lambda disk: (disk.root / ".kafka2011_flushed").write_bytes(b"clock 1\n"),
    ],
    ids=["no segments", "too short", "no marks", "torn marks"],
)
def test_a_directory_that_misses_something_is_not_whole_for_ever(
    disk: DataDirectory, lose: Callable[[DataDirectory], object]
) -> None:
    append_and_flush(disk.log(), E, E)
    first = journal(disk)
    assert first.whole
    disk.close()
    replica_journal.write(disk.files, disk.root, counted(first, 0))
    lose(disk)
    assert not journal(disk).whole
    assert not journal(disk).whole, "the marks are new, the journal remembers"


def test_a_watermark_survives_a_stop_and_is_never_above_the_end(disk: DataDirectory) -> None:
    append_and_flush(disk.log(), E, E)
    log = disk.log(replica=A)
    log.ends.move_watermark(len(E))
    log = disk.log(replica=A)
    assert (log.high_watermark, log.flushed_end) == (len(E), 2 * len(E))
