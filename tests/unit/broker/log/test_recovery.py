"""Recovery after an unclean stop: what is torn is cut, after a copy; what is corrupt stays.

Exhaustive over every byte of small segments (S3, S4, S6, S7), with verdicts through the manager,
as a broker starts.
"""

import random
import struct
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka2011.broker.log import recovery
from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.recovery import Examination, Verdict
from tests.support.faulty_files import Fault, FaultyFileLayer
from tests.support.logs import contents, entry, manager
from tests.vectors import vector

SEGMENT = "00000000000000000000.kafka"
SETS = [
    entry(b"first message"),
    entry(b"magic zero", magic=0),
    entry(b""),
    vector("S4"),
    vector("S5"),
    entry(b"the last but one"),
    entry(b"the very last message"),
]
WHOLE = b"".join(SETS)
BOUNDARIES = [sum(map(len, SETS[:count])) for count in range(len(SETS) + 1)]


def examined(data: bytes) -> Examination:
    return recovery.examine(lambda count, position: data[position : position + count], len(data))


def start_on(root: Path, data: bytes) -> Log:
    """A broker's start after an unclean stop, on one segment with these bytes."""
    (root / "t-0").mkdir(parents=True)
    (root / "t-0" / SEGMENT).write_bytes(data)
    logs = manager(root)
    log = logs.logs["t", 0]
    logs.unlock()
    return log


def quarantined(root: Path) -> bytes:
    directory = root.parent / f"{root.name}-quarantine"
    copies = list(directory.iterdir())
    if not copies:
        return b""
    assert len(copies) == 1
    return copies[0].read_bytes()


def test_whole_segment_is_clean_and_untouched(tmp_path: Path) -> None:
    found = examined(WHOLE)
    assert (found.verdict, found.valid_bytes, found.entry_count) == (Verdict.CLEAN, len(WHOLE), 7)
    log = start_on(tmp_path / "logs", WHOLE)
    assert contents(log) == WHOLE
    assert quarantined(tmp_path / "logs") == b""


def test_empty_segment_is_clean() -> None:
    assert examined(b"").verdict is Verdict.CLEAN


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_cut_at_every_byte_keeps_exactly_the_whole_entries(tmp_path: Path, cut: int) -> None:
    """S3, over the whole segment."""
    root = tmp_path / "logs"
    log = start_on(root, WHOLE[:cut])
    kept = max(boundary for boundary in BOUNDARIES if boundary <= cut)
    assert log.high_watermark == kept
    assert contents(log) == WHOLE[:kept]
    assert (root / "t-0" / SEGMENT).read_bytes() == WHOLE[:kept]
    assert quarantined(root) == WHOLE[kept:cut]
    log.append(SETS[0], 1, 0)
    log.flush()
    assert contents(log) == WHOLE[:kept] + SETS[0], "the next append is at the boundary"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 9, 10, 511, 512, 513, 4096, 65536])
def test_zero_tail_is_cut(tmp_path: Path, size: int) -> None:
    log = start_on(tmp_path / "logs", WHOLE + bytes(size))
    assert contents(log) == WHOLE
    assert quarantined(tmp_path / "logs") == bytes(size)


def test_a_zero_tail_of_many_megabytes_is_examined_quickly() -> None:
    found = examined(WHOLE + bytes(64 * 1024 * 1024))
    assert (found.verdict, found.valid_bytes) == (Verdict.TORN, len(WHOLE))


GARBAGE = {
    "negative length": b"\xff\xff\xff\xff" + b"x" * 50,
    "huge length": b"\x7f\xff\xff\xff" + b"x" * 50,
    "length 4": b"\0\0\0\4" + b"x" * 50,
    "length 5, magic 1": b"\0\0\0\5\1\0\0\0\0" + b"x" * 50,
    "unknown magic": b"\0\0\0\x0a\x09" + b"x" * 50,
    "header that looks right, wrong CRC": b"\0\0\0\x0b\1\0\0\0\0\0hello",
    "header that looks right, and no more": b"\0\0\0\x0b\1\0\x36\x10\xa6",
}


@pytest.mark.parametrize("tail", GARBAGE.values(), ids=GARBAGE)
def test_garbage_tail_is_cut(tmp_path: Path, tail: bytes) -> None:
    log = start_on(tmp_path / "logs", WHOLE + tail)
    assert contents(log) == WHOLE
    assert quarantined(tmp_path / "logs") == tail


@pytest.mark.parametrize("seed", range(30))
def test_random_tail_is_cut(tmp_path: Path, seed: int) -> None:
    """The amounts of the original project's own later test: 1 to 1024 random bytes."""
    rng = random.Random(seed)
    tail = rng.randbytes(rng.randint(1, 1024))
    log = start_on(tmp_path / "logs", WHOLE + tail)
    assert contents(log) == WHOLE
    assert quarantined(tmp_path / "logs") == tail


@pytest.mark.parametrize("tail", GARBAGE.values(), ids=GARBAGE)
def test_whole_entries_after_garbage_are_never_taken_for_log(tmp_path: Path, tail: bytes) -> None:
    """Neither are they cut off in silence: the partition goes offline, untouched."""
    data = WHOLE + tail + entry(b"behind the damage, and whole")
    log = start_on(tmp_path / "logs", data)
    assert log.state is LogState.OFFLINE
    assert (log.directory / SEGMENT).read_bytes() == data
    assert quarantined(tmp_path / "logs") == b""


@pytest.mark.parametrize("bit", range(8))
def test_one_flipped_bit_never_loses_whole_entries_in_silence(bit: int) -> None:
    """S6 and S7, over every byte: either the damage cannot be seen in 0.7's format (the result
    parses whole), or the verdict is corrupt, or nothing but the last entry is given up."""
    for position in range(len(WHOLE)):
        check_verdict_on_flipped_bit(position, bit)


def check_verdict_on_flipped_bit(position: int, bit: int) -> None:
    data = bytearray(WHOLE)
    data[position] ^= 1 << bit
    found = examined(bytes(data))
    damaged = max(boundary for boundary in BOUNDARIES if boundary <= position)
    is_last = damaged == BOUNDARIES[-2]
    if found.verdict is Verdict.CLEAN:
        within = position - damaged
        header = 5 if data[damaged + 4] == 0 else 6
        assert within < header or len(SETS[BOUNDARIES.index(damaged)]) == 10, (
            "a damaged CRC or payload was taken for good"
        )
    elif found.verdict is Verdict.CORRUPT:
        assert not is_last
        assert found.valid_bytes == damaged
    else:
        assert is_last, "whole entries behind the damage would be cut off"
        assert found.valid_bytes == damaged


# But for the attributes, which nothing protects.
@pytest.mark.parametrize(
    "position", [p for p in range(BOUNDARIES[5], BOUNDARIES[6]) if p != BOUNDARIES[5] + 5]
)
def test_flipped_byte_of_an_entry_takes_the_partition_offline(
    tmp_path: Path, position: int
) -> None:
    data = bytearray(WHOLE)
    data[position] ^= 0xFF
    log = start_on(tmp_path / "logs", bytes(data))
    assert log.state is LogState.OFFLINE
    assert "position" in log.state_reason
    assert (log.directory / SEGMENT).read_bytes() == bytes(data), "nothing is touched"


def test_a_large_torn_entry_with_whole_entries_in_its_payload_is_torn(tmp_path: Path) -> None:
    """A mirror may carry sets as payloads: what stands inside proves nothing."""
    carried = entry(b"".join(entry(b"carried %d" % number) for number in range(100)))
    log = start_on(tmp_path / "logs", WHOLE + carried[:1000])
    assert contents(log) == WHOLE


def test_a_damaged_length_before_whole_entries_is_corrupt() -> None:
    """Any single flipped bit of a length: what follows is whole, so it is no torn ending."""
    for bit in range(32):
        (length,) = struct.unpack_from(">I", WHOLE, BOUNDARIES[3])
        data = bytearray(WHOLE)
        struct.pack_into(">I", data, BOUNDARIES[3], length ^ (1 << bit))
        found = examined(bytes(data))
        assert found.verdict is Verdict.CORRUPT, f"bit {bit}: {found}"


@pytest.mark.parametrize("lost", range(1, 12))
def test_a_sector_that_never_reached_the_disk_is_torn(lost: int) -> None:
    """Sectors of one write may arrive in any order: zeros in between, whole entries behind."""
    data = bytearray(b"".join(entry(random.Random(number).randbytes(700)) for number in range(10)))
    data[lost * 512 : (lost + 1) * 512] = bytes(512)
    found = examined(bytes(data))
    assert found.verdict is Verdict.TORN
    assert found.valid_bytes == lost * 512 // 710 * 710


# --- content that looks like entries, and entries that are large ---------------------------------


def utf_16(number: int, characters: int = 100) -> bytes:
    text = "".join(chr(65 + (number + at) % 26) for at in range(characters))
    return entry(text.encode("utf-16-be"))


@pytest.mark.parametrize("within", [3, 5, 8, 50], ids=["length", "attributes", "CRC", "payload"])
def test_one_flipped_byte_in_utf_16_text_cuts_nothing(within: int) -> None:
    """Text in UTF-16 looks like the start of an entry at every character: whoever searches for the
    next entry by its looks checksums for ever, and must not give up the rest for that."""
    sets = [utf_16(number) for number in range(30_000)]
    data = bytearray(b"".join(sets))
    damaged = len(sets[0]) * 1000
    data[damaged + within] ^= 0x10
    found = examined(bytes(data))
    if within == 5:  # the attributes: nothing protects them
        assert found.verdict is Verdict.CLEAN
        return
    assert (found.verdict, found.valid_bytes) == (Verdict.CORRUPT, damaged)
    assert found.reason.count("position") == 1
    assert f"position {damaged}" in found.reason


@pytest.mark.parametrize("within", [1, 3, 4, 8, 1_000_000])
@pytest.mark.parametrize("size", [3_000_000, 9_000_000])
def test_one_flipped_byte_in_a_large_entry_cuts_nothing(size: int, within: int) -> None:
    rng = random.Random(size)
    large = [entry(rng.randbytes(size)) for _ in range(3)]
    small = [entry(b"whole, number %d" % number) for number in range(10)]
    data = bytearray(b"".join([small[0], *large, *small]))
    damaged = len(small[0]) + len(large[0])
    data[damaged + within] ^= 0x04
    found = examined(bytes(data))
    assert (found.verdict, found.valid_bytes) == (Verdict.CORRUPT, damaged)


@pytest.mark.parametrize("kind", ["UTF-16", "random", "carried"])
@pytest.mark.parametrize("cut", [1, 511, 512, 100_000, 299_990, 299_998])
def test_a_torn_write_of_any_content_is_torn(kind: str, cut: int) -> None:
    """SIGKILL in the middle of a write: the end of the file cuts the entry."""
    if kind == "UTF-16":
        last = utf_16(1, 150_000)
    elif kind == "random":
        last = entry(random.Random(1).randbytes(300_000))
    else:  # by a mirror
        last = entry(b"".join(utf_16(number, 1000) for number in range(150)))
    found = examined(WHOLE + last[: len(last) - cut])
    assert (found.verdict, found.valid_bytes) == (Verdict.TORN, len(WHOLE))


@given(
    payloads=st.lists(
        st.one_of(
            st.binary(max_size=2000),
            st.integers(0, 3000).map(bytes),
            st.text(max_size=800).map(lambda text: text.encode("utf-16-be", "surrogatepass")),
            st.lists(st.binary(max_size=300)).map(lambda them: b"".join(map(entry, them))),
        ).filter(lambda payload: payload != b""),
        min_size=1,
        max_size=12,
    ),
    flushed=st.integers(0, 12),
    rng=st.randoms(use_true_random=False),
)
def test_whatever_a_power_loss_leaves_is_torn(
    payloads: list[bytes], flushed: int, rng: random.Random
) -> None:
    """S2: of what was not flushed each sector is there or zeros, up to any size."""
    sets = [entry(payload, magic=rng.randrange(2)) for payload in payloads]
    written = b"".join(sets)
    durable = len(b"".join(sets[:flushed]))
    data = bytearray(written[: rng.randint(durable, len(written))])
    start = durable
    while start < len(data):
        end = min(len(data), (start // 512 + 1) * 512)
        if rng.random() < 0.4:
            data[start:end] = bytes(end - start)
        start = end
    found = examined(bytes(data))
    assert found.verdict is not Verdict.CORRUPT, found.reason
    assert durable <= found.valid_bytes
    assert written.startswith(bytes(data[: found.valid_bytes]))


@given(
    payloads=st.lists(st.binary(min_size=1, max_size=1500), min_size=2, max_size=12),
    where=st.floats(0, 1, exclude_max=True),
    change=st.integers(1, 255),
)
def test_one_changed_byte_before_the_last_entry_is_never_torn(
    payloads: list[bytes], where: float, change: int
) -> None:
    """But where a payload holds a sector of zeros, which a power loss leaves as well."""
    sets = [entry(payload) for payload in payloads]
    data = bytearray(b"".join(sets))
    position = int(where * (len(data) - len(sets[-1])))
    data[position] ^= change
    assume(bytes(512) not in data)
    found = examined(bytes(data))
    if found.verdict is Verdict.TORN:
        # What parses differently may be good up to the last entry, no further.
        assert found.valid_bytes > position, found.reason


def test_entries_over_the_edge_of_what_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    data = b"".join(entry(rng.randbytes(rng.randint(0, 300))) for _ in range(200))
    data += entry(rng.randbytes(5000)) + entry(b"end")
    for read_bytes in (16, 100, 1000, 4096):
        monkeypatch.setattr(recovery, "READ_BYTES", read_bytes)
        found = examined(data)
        assert (found.verdict, found.valid_bytes, found.entry_count) == (
            Verdict.CLEAN,
            len(data),
            202,
        )
        cut = examined(data[:-1])
        assert (cut.verdict, cut.valid_bytes) == (Verdict.TORN, len(data) - len(entry(b"end")))


# --- the cut itself ------------------------------------------------------------------------------


def test_recovery_keeps_the_time_of_the_last_write(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    path = root / "t-0" / SEGMENT
    path.write_bytes(WHOLE + b"\0\0")
    import os

    os.utime(path, (1_200_000_000, 1_200_000_000))
    logs = manager(root)
    assert logs.logs["t", 0].segments[0].time_ms == 1_200_000_000_000
    assert path.stat().st_mtime == 1_200_000_000
    logs.close()


def test_copy_is_durable_before_the_cut(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    (root / "t-0" / SEGMENT).write_bytes(WHOLE + b"torn")
    files = FaultyFileLayer(tmp_path)
    logs = manager(root, files)
    order = [step for step in files.operations if step not in ("read_at", "open")]
    assert order[order.index("write_at") :][:5] == [
        "write_at",
        "sync_file",
        "sync_directory",
        "truncate",
        "set_modified_ms",
    ]
    logs.close()


@pytest.mark.parametrize("nth", range(1, 40))
def test_recovery_that_fails_anywhere_comes_to_the_same_end_when_run_again(
    tmp_path: Path, nth: int
) -> None:
    """The Nth operation fails, once; nothing is lost, and the next start comes to the end."""
    root = tmp_path / "logs"
    (root / "t-0").mkdir(parents=True)
    (root / "t-0" / SEGMENT).write_bytes(WHOLE + b"torn ending")
    files = FaultyFileLayer(tmp_path, fault=Fault(nth))
    try:
        logs = manager(root, files)
    except DataDirectoryError:
        files.close_all()
        assert (root / "t-0" / SEGMENT).read_bytes()[: len(WHOLE)] == WHOLE
        logs = manager(root)
    files.fault = None
    if logs.logs["t", 0].state is LogState.OFFLINE:
        assert str(tmp_path) in logs.logs["t", 0].state_reason, "a path is named"
        logs.close()
        logs = manager(root)
    assert contents(logs.logs["t", 0]) == WHOLE
    copies = list((tmp_path / "logs-quarantine").iterdir())
    assert any(copy.read_bytes() == b"torn ending" for copy in copies)
    logs.close()


def test_a_second_torn_ending_gets_its_own_copy(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    for tail in (b"one", b"two"):
        (root / "t-0").mkdir(parents=True, exist_ok=True)
        (root / "t-0" / SEGMENT).write_bytes(WHOLE + tail)
        logs = manager(root)
        logs.unlock()
    copies = sorted(path.read_bytes() for path in (tmp_path / "logs-quarantine").iterdir())
    assert copies == [b"one", b"two"]


def test_examination_allocates_no_more_than_its_reads(tmp_path: Path) -> None:
    """No allocation beyond a read's size, whatever a length claims."""
    import tracemalloc

    data = b"\x7f\xff\xff\xf0" + b"y" * (40 * 1024 * 1024)
    path = tmp_path / "segment"
    path.write_bytes(data)
    del data
    files = FileLayer()
    fd = files.open(path)
    tracemalloc.start()
    found = recovery.examine_file(files, fd)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    files.close(fd)
    assert found.verdict is Verdict.TORN
    assert peak < 40 * 1024 * 1024
