"""The data directory: what is loaded, what is refused and how, the lock, the clean stop."""

import errno
import os
from pathlib import Path

import pytest

from kafka2011.broker.log import recovery
from kafka2011.broker.log.clean_stop import ENDS, MARKER, Ends
from kafka2011.broker.log.errors import DataDirectoryError, LimitReached, PartitionError
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.log import LogState
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.broker.log.suspect_cache import NOTE
from tests.support.logs import contents, entry, manager, settings
from tests.unit.broker.data_directory import (
    FIRST,
    DataDirectory,
    append,
    append_and_flush,
    some,
)

E = entry(b"hello")


def test_what_is_no_log_is_passed_over(disk: DataDirectory) -> None:
    """Unlike 0.7, which does not start on a directory like lost+found."""
    notes = disk.put(E).with_name("notes.txt")
    notes.write_text("x")
    (disk.root / "stray file").write_text("x")
    for name in (".hidden-0", "lost+found", "topic-x"):
        (disk.root / name).mkdir()
    for name in ("page-view-0", "a-1-2"):  # topics may hold dashes
        disk.put(E, partition=name)
    logs = disk.open()
    assert set(logs.logs) == {("t", 0), ("page-view", 0), ("a-1", 2)}
    assert contents(logs.logs["t", 0]) == E
    disk.close()
    assert notes.exists()


def test_directory_without_segments_gets_the_first(disk: DataDirectory) -> None:
    (disk.root / "t-0").mkdir(parents=True)
    assert disk.log().log_end == 0
    assert disk.names() == [FIRST]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (f"{15:020d}.kafka", ""),
        (f"{20:020d}.kafka", "a gap"),
        (f"{14:020d}.kafka", "an overlap"),
        ("15.kafka", "does not have a segment's name"),
    ],
    ids=["joined", "gap", "overlap", "wrong name"],
)
def test_segments_that_do_not_join_take_the_partition_offline_only(
    disk: DataDirectory, second: str, reason: str
) -> None:
    """The original does not start at all."""
    disk.put(E).with_name(second).write_bytes(E)
    disk.put(E, partition="other-0")
    logs = disk.open()
    log = logs.logs["t", 0]
    if reason:
        assert log.state is LogState.OFFLINE
        assert reason in log.state_reason
        assert second in log.state_reason, "the path is named"
    else:
        assert contents(log) == E + E
    assert contents(logs.logs["other", 0]) == E
    disk.close()
    assert len(disk.names()) == 2, "nothing is deleted"


def test_a_name_above_every_offset_is_no_segment_s(disk: DataDirectory) -> None:
    """Its partition was served: each request for its offsets ended in a stack trace."""
    for start in (2**63 - 1, 2**63):
        disk.put(b"", start, f"t-{start - 2**63 + 1}")
    logs = disk.open()
    assert some(logs.get("t", 0)).offsets_before(-2, 1) == [2**63 - 1]
    assert "does not have a segment's name" in some(logs.get("t", 1)).state_reason


def test_a_partition_behind_a_symbolic_link_is_offline_and_stays_as_it_is(
    disk: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """No link is followed. Nor is it passed over: the next append would begin the partition anew
    at 0, behind the link, in the midst of its segments."""
    elsewhere = disk.put(E, start=100).parent
    elsewhere.rename(disk.root.parent / "elsewhere")
    (disk.root / "t-0").symlink_to(disk.root.parent / "elsewhere")
    (disk.root / "u-0").symlink_to(disk.root / "nowhere")
    (disk.root / "link").symlink_to("t-0")
    logs = disk.open()
    assert set(logs.logs) == {("t", 0), ("u", 0)}
    for log in logs:
        assert log.state is LogState.OFFLINE
        assert f"{disk.root / log.name} is a symbolic link: " in log.state_reason
        assert log.state_reason in caplog.text
    assert logs.get_or_create("t", 0) is logs.logs["t", 0]
    disk.close()
    assert disk.names() == [f"{100:020d}.kafka"]
    assert logs.loaded.lost == ["t-0 is offline", "u-0 is offline"]


@pytest.mark.parametrize("is_link", [False, True], ids=["directory", "link"])
def test_a_directory_that_was_not_loaded_is_not_taken_over(
    disk: DataDirectory, is_link: bool
) -> None:
    """It came after the start: nothing is known of its segments."""
    logs = disk.open()
    disk.put(E, start=100)
    if is_link:
        (disk.root / "t-0").rename(disk.root.parent / "elsewhere")
        (disk.root / "t-0").symlink_to(disk.root.parent / "elsewhere")
    with pytest.raises(FileExistsError, match="not loaded"):
        logs.get_or_create("t", 0)
    assert logs.topics == set()
    assert disk.names() == [f"{100:020d}.kafka"]


def test_a_first_segment_that_is_not_empty_is_not_taken_over(disk: DataDirectory) -> None:
    logs = disk.open()
    disk.put(E)
    with pytest.raises(FileExistsError, match="not loaded"):
        logs.get_or_create("t", 0)
    disk.put(b"")
    assert logs.get_or_create("t", 0).log_end == 0, "left by a first try"


def test_a_number_has_one_way_to_be_written(
    disk: DataDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """Else two directories are one partition, and what is in one of them is not served."""
    disk.put(E, partition="t-0")
    strays = ["t-00", "t-01", "t-\u0663", "t-+1"]
    for name in strays:
        disk.put(E + E, partition=name)
    logs = disk.open()
    assert {key: contents(log) for key, log in logs.logs.items()} == {("t", 0): E}
    for name in strays:
        assert any(
            name in line.getMessage() and "stray_directory" in line.getMessage()
            for line in caplog.records
        )


@pytest.mark.parametrize("topic", ["t\udc80", "a\nb", "a\x01b", "\ue000", ""])
def test_what_can_be_no_topic_is_passed_over_as_it_is(disk: DataDirectory, topic: str) -> None:
    path = disk.put(E + b"torn", partition=f"{topic}-0")
    assert not disk.open().logs
    assert disk.close()
    assert not disk.open().logs
    assert path.read_bytes() == E + b"torn"


def test_only_the_newest_segment_is_examined(disk: DataDirectory) -> None:
    disk.put(E[:-1] + b"!")
    disk.put(E + b"torn", 15)
    assert disk.log().high_watermark == 30


def test_an_empty_newest_segment_is_where_appends_go_on(disk: DataDirectory) -> None:
    disk.put(E)
    disk.put(b"", 15)
    log = disk.log()
    append_and_flush(log, E)
    assert contents(log) == E + E
    assert [segment.size for segment in log.segments] == [15, 15]


def test_limits_of_topics_and_partitions(disk: DataDirectory) -> None:
    logs = disk.open(topics_max=2, partitions_max=3)
    logs.get_or_create("a", 0)
    logs.get_or_create("b", 0)
    with pytest.raises(LimitReached):
        logs.get_or_create("c", 0)
    logs.get_or_create("a", 1)
    with pytest.raises(LimitReached):
        logs.get_or_create("a", 2)
    logs.get_or_create("a", 1)


@pytest.mark.parametrize("topic", ["../x", "/etc/x", "a/b"])
def test_a_topic_that_would_leave_the_directory_makes_nothing(
    disk: DataDirectory, topic: str
) -> None:
    """The names are checked before; this is the second fence."""
    logs = disk.open()
    with pytest.raises(LimitReached, match="is not inside"):
        logs.get_or_create(topic, 0)
    assert list(disk.root.glob("*-0")) == []


def test_an_unfinished_list_of_ends_is_written_anew(disk: DataDirectory) -> None:
    log = disk.log()
    append_and_flush(log, E)
    (disk.root / ENDS).write_bytes(b"cut")
    assert disk.close()
    assert disk.open().loaded.recovered_bytes == len(E)
    assert contents(disk.log()) == E


# --- lock and quarantine -------------------------------------------------------------------------


def test_directory_in_use_is_refused(disk: DataDirectory) -> None:
    disk.open()
    with pytest.raises(DataDirectoryError, match="in use by another broker"):
        manager(disk.root)
    disk.close()
    disk.open()


@pytest.mark.parametrize("inside", ["", "quarantine", "t-0/x"])
def test_quarantine_must_lie_outside(tmp_path: Path, inside: str) -> None:
    limits = {"topics_max": 1, "partitions_max": 1, "open_segments_max": 1}
    root, clock = tmp_path / "logs", lambda: 0
    logs = LogManager(
        root, root / inside, lambda _: settings(), files=FileLayer(), clock=clock, **limits
    )
    with pytest.raises(DataDirectoryError, match="must lie outside"):
        logs.load()


def test_unreadable_directory_is_one_line(disk: DataDirectory) -> None:
    disk.put(E)
    disk.fail(errno.EACCES, "make_directory")
    with pytest.raises(DataDirectoryError, match="Permission denied") as raised:
        disk.open()
    assert "\n" not in str(raised.value)
    disk.open()  # the lock was let go


def test_quarantine_is_made_at_the_start_or_the_broker_says_which_it_cannot_make(
    disk: DataDirectory,
) -> None:
    disk.open()
    disk.close()
    assert disk.quarantine in disk.files.durable_names
    disk.quarantine.rmdir()
    disk.quarantine.write_bytes(b"in the way")
    message = r"quarantine\.dir .*logs-quarantine cannot be used"
    with pytest.raises(DataDirectoryError, match=message):
        disk.open()
    disk.quarantine.unlink()
    disk.open()  # the lock was let go


def test_a_new_data_directory_is_durable_to_its_last_parent(tmp_path: Path) -> None:
    disk = DataDirectory(tmp_path / "a" / "b")
    disk.open()
    disk.close()
    parents = {tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "logs"}
    assert parents <= disk.files.durable_names


# --- one partition that cannot be read -----------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize(
    ("kind", "nth", "named"),
    [
        ("open", 1, FIRST),
        ("read_at", 1, FIRST),
        ("open", 2, "logs-quarantine/t-0/"),
        ("write_at", 1, "logs-quarantine/t-0/"),
        ("truncate", 1, FIRST),
        ("sync_file", 2, FIRST),
    ],
)
def test_a_partition_that_cannot_be_loaded_is_offline_and_costs_no_other(
    disk: DataDirectory, kind: str, nth: int, named: str, error: int
) -> None:
    disk.put(E + b"torn")
    disk.put(E, partition="u-0")
    disk.fail(error, kind, nth=nth)
    logs = disk.open()
    disk.files.fault = None
    log, other = logs.logs["t", 0], logs.logs["u", 0]
    assert log.state is LogState.OFFLINE
    assert named in log.state_reason
    assert os.strerror(error) in log.state_reason
    append_and_flush(other, E)
    assert contents(other) == E + E
    disk.close()
    assert disk.files.paths == {}
    assert contents(disk.log()) == E
    assert set(disk.quarantined()) == {b"torn"}, "no half copies"


# --- what the disk holds -------------------------------------------------------------------------


def test_recovery_believes_the_disk_and_not_what_a_failed_flush_left_in_memory(
    disk: DataDirectory,
) -> None:
    """The kernel keeps such bytes as if they had been written, and the next fsync succeeds."""
    log = disk.log()
    append_and_flush(log, E)
    disk.fail(errno.EIO, "sync_data")
    append_and_flush(log, E)
    assert log.state is LogState.FAILED
    disk.close()
    disk.files.on_disk[disk.root / "t-0" / FIRST] = E + bytes(len(E))
    disk.fail(errno.EIO, "read_at", nth=2)  # the first reads the mark of the flushed end
    assert disk.log().state is LogState.OFFLINE
    assert (disk.root / NOTE).exists(), "nothing has examined it yet"
    disk.files.fault = None
    assert contents(disk.log()) == E
    assert not (disk.root / NOTE).exists()
    disk.crash()
    disk.operations()
    disk.open()
    assert "drop_cached" not in disk.operations(), "slow, and no write to the disk has failed"


# --- the clean stop ------------------------------------------------------------------------------


def test_clean_stop_leaves_the_original_s_marker_empty_and_durable_until_the_next_start(
    disk: DataDirectory,
) -> None:
    """B3: a marker that comes back with the power hides a torn ending."""
    disk.log().append(E, 1, 0)
    assert disk.close()
    assert (disk.root / MARKER).read_bytes() == b""
    assert all(path.name.startswith(".") for path in disk.root.iterdir() if path.is_file())
    assert disk.root / MARKER in disk.files.durable_names
    disk.open()
    assert not {disk.root / MARKER, disk.root / ENDS} & disk.files.durable_names


def test_after_a_clean_stop_only_the_last_set_is_examined(disk: DataDirectory) -> None:
    append_and_flush(disk.log(), *[E] * 100)
    logs = disk.open()
    assert logs.loaded.recovered_bytes == len(E)
    assert contents(logs.logs["t", 0]) == E * 100
    disk.crash()
    assert disk.open().loaded.recovered_bytes == 100 * len(E)


def test_a_partition_that_lies_idle_is_examined_from_its_end_at_each_later_start(
    disk: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "READ_BYTES", 4 * len(E))
    disk.put(E * 101)  # as an unclean stop leaves it
    assert disk.open().loaded.recovered_bytes == 101 * len(E)
    for _ in range(3):
        assert 0 < disk.open().loaded.recovered_bytes <= 4 * len(E)
    append_and_flush(disk.log(), E)
    for _ in range(3):
        assert disk.open().loaded.recovered_bytes == len(E)
    assert contents(disk.log()) == E * 102


@pytest.mark.parametrize(
    ("damaged", "kept"),
    [
        pytest.param((E * 10)[:-3], 9, id="cut"),
        pytest.param(E * 10 + b"torn", 10, id="longer"),
        pytest.param((E * 10)[:-1] + b"!", 9, id="last entry"),
    ],
)
def test_a_marker_that_lies_is_noticed(disk: DataDirectory, damaged: bytes, kept: int) -> None:
    """S15: the marker of a clean stop and the files disagree."""
    append_and_flush(disk.log(), *[E] * 10)
    disk.close()
    disk.put(damaged)
    log = disk.log()
    if kept == 10:
        assert contents(log) == E * kept
    else:
        assert f"at position {15 * kept}, below position 150" in log.state_reason


def test_a_marker_of_the_original_is_not_trusted_with_the_content(disk: DataDirectory) -> None:
    disk.put(E + b"torn")
    (disk.root / MARKER).write_bytes(b"")
    assert contents(disk.log()) == E


def test_ends_survive_their_text_and_nonsense_counts_as_absent(disk: DataDirectory) -> None:
    log = disk.open().get_or_create("a b", 0)  # a topic of the 0.7 rule
    append_and_flush(log, E)
    ends = Ends()
    ends.add(log)
    again = Ends.from_text(ends.to_text())
    assert again.trusted_start("a b-0", log.segments[-1]) == 0
    for text in ("", "complete", "a b-0 0 0 15\n", "x\ncomplete\n", "\0\ncomplete\n"):
        assert Ends.from_text(text).trusted_start("a b-0", log.segments[-1]) is None


# --- times ---------------------------------------------------------------------------------------


def test_times_never_fall_along_a_log_and_never_lie_ahead(disk: DataDirectory) -> None:
    disk.clock.current_ms = 2_000_000_000_000
    for number, seconds in enumerate((1_500_000_000, 1_400_000_000, 3_000_000_000)):
        os.utime(disk.put(E, 15 * number), (seconds, seconds))
    times = [segment.time_ms for segment in disk.log().segments]
    assert times == [1_500_000_000_000, 1_500_000_000_000, 2_000_000_000_000]


def test_due_for_flush_by_the_interval(disk: DataDirectory) -> None:
    logs = disk.open(flush_interval_messages=500, flush_interval_ms=3000)
    log = logs.get_or_create("t", 0)
    assert list(logs.due_for_flush()) == []
    append(log, E)
    disk.clock.advance(2999)
    assert list(logs.due_for_flush()) == [], "a new log waits its interval from its making"
    disk.clock.advance(1)
    assert list(logs.due_for_flush()) == [log]
    log.flush()
    disk.clock.advance(60_000)
    assert list(logs.due_for_flush()) == [], "nothing unflushed"
    append(log, E)
    assert list(logs.due_for_flush()) == [log], "after an idle time the first tick flushes"


# --- every operation fails once ------------------------------------------------------------------


START = entry(b"from a life before")
TORN = b"torn ending"


def work_until_it_fails(disk: DataDirectory) -> tuple[bytes, int]:
    """A broker's day: recovery, appends, rolls, flushes, stop. Returns what was appended to a log
    that never lost anything, and how much of it was durable."""
    sent, durable = START, len(START)
    try:
        logs = disk.open(segment_bytes_max=40)
        log = logs.get_or_create("t", 0)
        for number in range(12):
            data = entry(b"message %02d" % number)
            append(log, data)
            sent += data
            log.flush()
            durable = log.high_watermark
        append_and_flush(logs.get_or_create("new", 0), E)
        clean = disk.close()
        assert not clean or (disk.root / MARKER).exists()
    except (DataDirectoryError, PartitionError, OSError):
        pass  # no other kind of error may come out
    finally:
        disk.drop()
    return sent, durable


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_each_operation_fails_in_turn_and_nothing_durable_is_lost(
    tmp_path: Path, error: int, persistent: bool
) -> None:
    """S10 and S13: the Nth file operation fails, for N = 1, 2, ... until a run passes untouched."""
    for nth in range(1, 500):
        disk = DataDirectory(tmp_path / str(nth))
        disk.put(START + TORN)
        disk.fail(error, nth=nth, persistent=persistent)
        sent, durable = work_until_it_fails(disk)
        untouched = some(disk.files.fault).hits == 0
        disk.files.fault = None
        logs = disk.open()
        assert {log.state for log in logs} == {LogState.ONLINE}, f"operation {nth}: offline"
        found = contents(logs.logs["t", 0])
        assert len(found) >= durable, f"operation {nth}: lost durable bytes"
        assert sent.startswith(found) or error == errno.ENOSPC, f"operation {nth}: other bytes"
        assert TORN in disk.quarantined()
        disk.close()
        if untouched:
            assert nth > 30, "each of dozens of operations failed once before"
            assert durable == len(sent)
            assert found == sent
            return
    raise AssertionError("no run passed untouched")
