"""The data directory: what is loaded, what is refused and how, the lock, the clean stop."""

import errno
import os
from pathlib import Path

import pytest

from kafka2011.broker.log import recovery
from kafka2011.broker.log.clean_stop import ENDS, MARKER, Ends
from kafka2011.broker.log.errors import DataDirectoryError, LimitReached, PartitionError
from kafka2011.broker.log.log import LogState
from kafka2011.broker.log.suspect_cache import NOTE
from tests.support.clock import ManualClock
from tests.support.faulty_files import Fault, FaultyFileLayer
from tests.support.logs import abandon, contents, entry, manager

E = entry(b"hello")
FIRST = "00000000000000000000.kafka"


def put(root: Path, directory: str, name: str = FIRST, data: bytes = E) -> Path:
    (root / directory).mkdir(parents=True, exist_ok=True)
    path = root / directory / name
    path.write_bytes(data)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    return made


def test_topics_may_hold_dashes(root: Path) -> None:
    put(root, "page-view-0")
    put(root, "a-1-2")
    logs = manager(root)
    assert set(logs.logs) == {("page-view", 0), ("a-1", 2)}
    logs.close()


def test_what_is_no_log_is_passed_over(root: Path) -> None:
    """Unlike 0.7, which does not start on a directory like lost+found."""
    (root / "stray file").write_text("x")
    (root / ".hidden-0").mkdir()
    (root / "lost+found").mkdir()
    (root / "topic-x").mkdir()
    put(root, "t-0")
    (root / "t-0" / "notes.txt").write_text("x")
    logs = manager(root)
    assert set(logs.logs) == {("t", 0)}
    assert contents(logs.logs["t", 0]) == E
    logs.close()
    assert (root / "t-0" / "notes.txt").exists()


def test_directory_without_segments_gets_the_first(root: Path) -> None:
    (root / "t-0").mkdir()
    logs = manager(root)
    assert (root / "t-0" / FIRST).exists()
    assert logs.logs["t", 0].log_end == 0
    logs.close()


@pytest.mark.parametrize(
    ("second", "kind"), [(20, "a gap"), (14, "an overlap"), (0, "")], ids=["gap", "overlap", "-"]
)
def test_segments_that_do_not_join_take_the_partition_offline_only(
    root: Path, second: int, kind: str
) -> None:
    """The original does not start at all."""
    put(root, "t-0")
    put(root, "other-0")
    put(root, "t-0", f"{second or 15:020d}.kafka")
    logs = manager(root)
    log = logs.logs["t", 0]
    if kind:
        assert log.state is LogState.OFFLINE
        assert kind in log.state_reason
        assert f"{second:020d}.kafka" in log.state_reason, "the path is named"
    else:
        assert contents(log) == E + E
    assert contents(logs.logs["other", 0]) == E
    logs.close()
    assert len(list((root / "t-0").iterdir())) == 2, "nothing is deleted"


def test_a_wrongly_named_segment_takes_the_partition_offline(root: Path) -> None:
    put(root, "t-0")
    put(root, "t-0", "15.kafka")
    logs = manager(root)
    assert logs.logs["t", 0].state is LogState.OFFLINE
    assert "15.kafka is not named as a segment" in logs.logs["t", 0].state_reason
    logs.close()


def test_only_the_newest_segment_is_examined(root: Path) -> None:
    put(root, "t-0", data=E[:-1] + b"!")
    put(root, "t-0", f"{15:020d}.kafka", E + b"torn")
    logs = manager(root)
    assert logs.logs["t", 0].high_watermark == 30
    logs.close()


def test_an_empty_newest_segment_is_where_appends_go_on(root: Path) -> None:
    put(root, "t-0")
    put(root, "t-0", f"{15:020d}.kafka", b"")
    logs = manager(root)
    log = logs.logs["t", 0]
    log.append(E, 1, 0)
    log.flush()
    assert contents(log) == E + E
    assert [segment.size for segment in log.segments] == [15, 15]
    logs.close()


def test_limits_of_topics_and_partitions(root: Path) -> None:
    logs = manager(root, topics_max=2, partitions_max=3)
    logs.get_or_create("a", 0)
    logs.get_or_create("b", 0)
    with pytest.raises(LimitReached):
        logs.get_or_create("c", 0)
    logs.get_or_create("a", 1)
    with pytest.raises(LimitReached):
        logs.get_or_create("a", 2)
    logs.get_or_create("a", 1)
    logs.close()


def test_a_topic_that_would_leave_the_directory_makes_nothing(root: Path) -> None:
    """The names are checked before; this is the second fence."""
    logs = manager(root)
    for topic in ("../x", "/etc/x", "a/b"):
        with pytest.raises(LimitReached):
            logs.get_or_create(topic, 0)
    assert list(root.glob("*-0")) == []
    logs.close()


# --- lock and quarantine -------------------------------------------------------------------------


def test_directory_in_use_is_refused(root: Path) -> None:
    logs = manager(root)
    with pytest.raises(DataDirectoryError, match="in use by another broker"):
        manager(root)
    logs.close()
    manager(root).close()


def test_quarantine_must_lie_outside(tmp_path: Path) -> None:
    from kafka2011.broker.log.file_layer import FileLayer
    from kafka2011.broker.log.log_manager import LogManager
    from tests.support.logs import settings

    root = tmp_path / "logs"
    for inside in (root, root / "quarantine", root / "t-0" / "x"):
        logs = LogManager(
            root,
            inside,
            lambda _: settings(),
            files=FileLayer(),
            clock=ManualClock(),
            topics_max=1,
            partitions_max=1,
            open_segments_max=1,
        )
        with pytest.raises(DataDirectoryError, match="must lie outside"):
            logs.load()


def test_unreadable_directory_is_one_line(root: Path) -> None:
    put(root, "t-0")
    files = FaultyFileLayer(root.parent, fault=Fault(1, errno.EACCES, ("make_directory",)))
    with pytest.raises(DataDirectoryError, match="Permission denied") as raised:
        manager(root, files)
    assert "\n" not in str(raised.value)
    files.close_all()
    manager(root).close()  # the lock was let go


def test_quarantine_is_made_at_the_start_or_the_broker_says_which_it_cannot_make(
    root: Path,
) -> None:
    quarantine = root.parent / "logs-quarantine"
    files = FaultyFileLayer(root.parent)
    manager(root, files).close()
    assert quarantine in files.durable_names
    quarantine.rmdir()
    quarantine.write_bytes(b"in the way")
    with pytest.raises(
        DataDirectoryError, match=r"quarantine\.dir .*logs-quarantine cannot be used"
    ):
        manager(root)
    quarantine.unlink()
    manager(root).close()  # the lock was let go


def test_a_new_data_directory_is_durable_to_its_last_parent(tmp_path: Path) -> None:
    files = FaultyFileLayer(tmp_path)
    manager(tmp_path / "a" / "b" / "logs", files).close()
    assert {tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "logs"} <= (
        files.durable_names
    )


# --- one partition that cannot be read -----------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize(
    ("kind", "nth", "named"),
    [
        ("open", 1, FIRST),
        ("read_at", 1, FIRST),
        ("open", 2, "logs-quarantine/t-0-"),
        ("write_at", 1, "logs-quarantine/t-0-"),
        ("truncate", 1, FIRST),
        ("sync_file", 2, FIRST),
    ],
)
def test_a_partition_that_cannot_be_loaded_is_offline_and_costs_no_other(
    root: Path, kind: str, nth: int, named: str, error: int
) -> None:
    put(root, "t-0", data=E + b"torn")
    put(root, "u-0")
    files = FaultyFileLayer(root.parent, fault=Fault(nth, error, (kind,)))
    logs = manager(root, files)
    files.fault = None
    log = logs.logs["t", 0]
    assert log.state is LogState.OFFLINE
    assert named in log.state_reason
    assert os.strerror(error) in log.state_reason
    other = logs.logs["u", 0]
    other.append(E, 1, 0)
    other.flush()
    assert contents(other) == E + E
    logs.close()
    assert files.paths == {}
    logs = manager(root)
    assert contents(logs.logs["t", 0]) == E
    copies = [path.read_bytes() for path in (root.parent / "logs-quarantine").iterdir()]
    assert set(copies) == {b"torn"}, "no half copies"
    logs.close()


# --- what the disk holds -------------------------------------------------------------------------


def test_recovery_believes_the_disk_and_not_what_a_failed_flush_left_in_memory(
    root: Path,
) -> None:
    """The kernel keeps such bytes as if they had been written, and the next fsync succeeds."""
    files = FaultyFileLayer(root.parent)
    logs = manager(root, files)
    log = logs.get_or_create("t", 0)
    log.append(E, 1, 0)
    log.flush()
    log.append(E, 1, 0)
    files.fault = Fault(1, errno.EIO, ("sync_data",))
    log.flush()
    files.fault = None
    assert log.state is LogState.FAILED
    logs.close()
    files.on_disk[root / "t-0" / FIRST] = E + bytes(len(E))
    files.fault = Fault(1, errno.EIO, ("read_at",))
    logs = manager(root, files)
    assert logs.logs["t", 0].state is LogState.OFFLINE
    assert (root / NOTE).exists(), "nobody has examined it yet"
    files.fault = None
    logs.close()
    logs = manager(root, files)
    assert contents(logs.logs["t", 0]) == E
    assert not (root / NOTE).exists()
    files.operations.clear()
    abandon(logs)
    logs = manager(root, files)
    assert "drop_cached" not in files.operations, "slow, and no write to the disk has failed"
    logs.close()


# --- the clean stop ------------------------------------------------------------------------------


def test_clean_stop_leaves_the_original_s_marker_empty(root: Path) -> None:
    logs = manager(root)
    logs.get_or_create("t", 0).append(E, 1, 0)
    assert logs.close()
    assert (root / MARKER).read_bytes() == b""
    assert all(path.name.startswith(".") for path in root.iterdir() if path.is_file())


def test_marker_is_durable_and_its_removal_too(root: Path) -> None:
    """B3: a marker that comes back with the power hides a torn ending."""
    files = FaultyFileLayer(root.parent)
    logs = manager(root, files)
    logs.get_or_create("t", 0).append(E, 1, 0)
    logs.close()
    assert root / MARKER in files.durable_names
    logs = manager(root, files)
    assert root / MARKER not in files.durable_names
    assert root / ENDS not in files.durable_names
    logs.close()


def test_after_a_clean_stop_only_the_last_set_is_examined(root: Path) -> None:
    logs = manager(root)
    log = logs.get_or_create("t", 0)
    for _ in range(100):
        log.append(E, 1, 0)
        log.flush()
    logs.close()
    logs = manager(root)
    assert logs.recovered_bytes == len(E)
    assert contents(logs.logs["t", 0]) == E * 100
    abandon(logs)
    logs = manager(root)
    assert logs.recovered_bytes == 100 * len(E)
    logs.close()


def test_a_partition_that_lies_idle_is_examined_from_its_end_at_each_later_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "READ_BYTES", 4 * len(E))
    put(root, "t-0", data=E * 101)  # as an unclean stop leaves it
    logs = manager(root)
    assert logs.recovered_bytes == 101 * len(E)
    for _ in range(3):
        logs.close()
        logs = manager(root)
        assert 0 < logs.recovered_bytes <= 4 * len(E)
    log = logs.logs["t", 0]
    log.append(E, 1, 0)
    log.flush()
    for _ in range(3):
        logs.close()
        logs = manager(root)
        assert logs.recovered_bytes == len(E)
    assert contents(logs.logs["t", 0]) == E * 102
    logs.close()


@pytest.mark.parametrize("damage", ["cut", "longer", "last entry"])
def test_a_marker_that_lies_is_noticed(root: Path, damage: str) -> None:
    """S15: the marker of a clean stop and the files disagree."""
    logs = manager(root)
    log = logs.get_or_create("t", 0)
    for _ in range(10):
        log.append(E, 1, 0)
        log.flush()
    logs.close()
    path = root / "t-0" / FIRST
    if damage == "cut":
        os.truncate(path, 10 * len(E) - 3)
    elif damage == "longer":
        path.write_bytes(path.read_bytes() + b"torn")
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    logs = manager(root)
    assert contents(logs.logs["t", 0]) == E * (10 if damage == "longer" else 9)
    logs.close()


def test_a_marker_of_the_original_is_not_trusted_with_the_content(root: Path) -> None:
    put(root, "t-0", data=E + b"torn")
    (root / MARKER).write_bytes(b"")
    logs = manager(root)
    assert contents(logs.logs["t", 0]) == E
    logs.close()


def test_ends_survive_their_text_and_nonsense_counts_as_absent(root: Path) -> None:
    logs = manager(root)
    log = logs.get_or_create("a b", 0)  # a topic of the 0.7 rule
    log.append(E, 1, 0)
    log.flush()
    ends = Ends()
    ends.add(log)
    again = Ends.from_text(ends.to_text())
    assert again.trusted_start("a b-0", log.segments[-1]) == 0
    for text in ("", "complete", "a b-0 0 0 15\n", "x\ncomplete\n", "\0\ncomplete\n"):
        assert Ends.from_text(text).trusted_start("a b-0", log.segments[-1]) is None
    logs.close()


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_stop_that_fails_anywhere_leaves_no_marker_or_a_true_one(root: Path, nth: int) -> None:
    """S10 for the marker."""
    files = FaultyFileLayer(root.parent)
    logs = manager(root, files)
    log = logs.get_or_create("t", 0)
    log.append(E, 1, 0)
    log.flush()
    files.fault = Fault(nth, errno.ENOSPC)
    clean = logs.close()
    files.close_all()
    files.fault = None
    assert clean == (root / MARKER).exists() or not clean
    logs = manager(root)
    assert contents(logs.logs["t", 0]) == E
    logs.close()


# --- times ---------------------------------------------------------------------------------------


def test_times_never_fall_along_a_log_and_never_lie_ahead(root: Path) -> None:
    clock = ManualClock(2_000_000_000_000)
    for number, seconds in enumerate((1_500_000_000, 1_400_000_000, 3_000_000_000)):
        path = put(root, "t-0", f"{15 * number:020d}.kafka")
        os.utime(path, (seconds, seconds))
    logs = manager(root, clock=clock)
    assert [segment.time_ms for segment in logs.logs["t", 0].segments] == [
        1_500_000_000_000,
        1_500_000_000_000,
        2_000_000_000_000,
    ]
    logs.close()


def test_due_for_flush_by_the_interval(root: Path) -> None:
    clock = ManualClock()
    logs = manager(root, clock=clock, flush_interval_messages=500, flush_interval_ms=3000)
    log = logs.get_or_create("t", 0)
    assert list(logs.due_for_flush()) == []
    log.append(E, 1, 0)
    log.write_gathered()
    clock.advance(2999)
    assert list(logs.due_for_flush()) == [], "a new log waits its interval from its making"
    clock.advance(1)
    assert list(logs.due_for_flush()) == [log]
    log.flush()
    clock.advance(60_000)
    assert list(logs.due_for_flush()) == [], "nothing unflushed"
    log.append(E, 1, 0)
    log.write_gathered()
    assert list(logs.due_for_flush()) == [log], "after an idle time the first tick flushes"
    logs.close()


# --- every operation fails once ------------------------------------------------------------------


def work_until_it_fails(root: Path, files: FaultyFileLayer) -> tuple[bytes, int]:
    """A broker's day: appends, rolls, flushes, retention, stop. Returns what was appended to a
    log that never lost anything, and how much of it was durable."""
    sent, durable = b"", 0
    try:
        logs = manager(root, files, segment_bytes_max=40)
    except DataDirectoryError:
        return sent, durable
    try:
        log = logs.get_or_create("t", 0)
        for number in range(12):
            data = entry(b"message %02d" % number)
            log.append(data, 1, 0)
            log.write_gathered()
            sent += data
            log.flush()
            durable = log.high_watermark
        logs.close()
    except (PartitionError, OSError):
        pass  # no other kind of error may come out
    finally:
        logs.unlock()
    return sent, durable


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_each_operation_fails_in_turn_and_nothing_durable_is_lost(
    tmp_path: Path, error: int, persistent: bool
) -> None:
    """S13: the Nth file operation fails, for N = 1, 2, ... until a run passes untouched."""
    for nth in range(1, 500):
        root = tmp_path / f"logs-{nth}"
        files = FaultyFileLayer(tmp_path, fault=Fault(nth, error, persistent=persistent))
        sent, durable = work_until_it_fails(root, files)
        untouched = files.fault is not None and files.fault.hits == 0
        files.close_all()
        if root.exists():
            logs = manager(root)
            log = logs.logs.get(("t", 0))
            found = contents(log) if log is not None and log.state is LogState.ONLINE else None
            assert found is not None or durable == 0, f"operation {nth}: offline"
            assert len(found or b"") >= durable, f"operation {nth}: lost durable bytes"
            if error == errno.EIO or untouched:
                assert sent.startswith(found or b""), f"operation {nth}: other bytes"
            logs.close()
        if untouched:
            assert durable == len(sent)
            return
    raise AssertionError("no run passed untouched")
