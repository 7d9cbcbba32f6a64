"""Recovery after an unclean stop: what is torn is cut, after a copy; what is corrupt stays.

Exhaustive over every byte of small segments (S3, S4, S6, S7), with verdicts through the manager,
as a broker starts.
"""

import os
import random
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafka2011.broker.log import dump, recovery
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.recovery import Examination, Verdict
from kafka2011.protocol.names import NAME_CHARACTERS_MAX
from tests.support.logs import contents, entry
from tests.unit.broker.data_directory import DataDirectory, append_and_flush, some
from tests.vectors import vector

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


def verdict(data: bytes) -> tuple[Verdict, int]:
    """The verdict on a segment, and how many of its bytes are whole entries."""
    found = examined(data)
    return found.verdict, found.valid_bytes


def start_on(disk: DataDirectory, data: bytes) -> Log:
    """The log after a start on one segment with these bytes and no clean stop before."""
    disk.put(data)
    return disk.log()


def changed(data: bytes, position: int, bits: int) -> bytes:
    """The data with these bits of one byte flipped."""
    return data[:position] + bytes([data[position] ^ bits]) + data[position + 1 :]


@pytest.mark.parametrize(("data", "count"), [(WHOLE, 7), (b"", 0)], ids=["entries", "empty"])
def test_whole_segment_is_clean_and_untouched(disk: DataDirectory, data: bytes, count: int) -> None:
    assert verdict(data) == (Verdict.CLEAN, len(data))
    assert examined(data).entry_count == count
    assert contents(start_on(disk, data)) == data
    assert disk.quarantined() == []


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_cut_at_every_byte_keeps_exactly_the_whole_entries(disk: DataDirectory, cut: int) -> None:
    """S3, over the whole segment."""
    log = start_on(disk, WHOLE[:cut])
    kept = max(boundary for boundary in BOUNDARIES if boundary <= cut)
    assert log.high_watermark == kept
    assert contents(log) == log.segments[0].path.read_bytes() == WHOLE[:kept]
    assert disk.quarantined() == [WHOLE[kept:cut]] * (kept < cut)
    append_and_flush(log, SETS[0])
    assert contents(log) == WHOLE[:kept] + SETS[0], "the next append is at the boundary"


def random_tail(seed: int) -> bytes:
    """1 to 1024 random bytes, the amounts of the original project's own later test."""
    rng = random.Random(seed)
    return rng.randbytes(rng.randint(1, 1024))


GARBAGE = {
    "negative length": b"\xff\xff\xff\xff" + b"x" * 50,
    "huge length": b"\x7f\xff\xff\xff" + b"x" * 50,
    "length 4": b"\0\0\0\4" + b"x" * 50,
    "length 5, magic 1": b"\0\0\0\5\1\0\0\0\0" + b"x" * 50,
    "unknown magic": b"\0\0\0\x0a\x09" + b"x" * 50,
    "header that looks right, wrong CRC": b"\0\0\0\x0b\1\0\0\0\0\0hello",
    "header that looks right, and no more": b"\0\0\0\x0b\1\0\x36\x10\xa6",
}
TAILS = {
    **GARBAGE,
    **{f"{n} zeros": bytes(n) for n in (1, 2, 3, 4, 5, 8, 9, 10, 511, 512, 513, 4096, 65536)},
    **{f"random {seed}": random_tail(seed) for seed in range(30)},
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_a_tail_that_is_no_entry_is_cut_and_kept_in_quarantine(
    disk: DataDirectory, tail: bytes
) -> None:
    """S4 and S5."""
    assert contents(start_on(disk, WHOLE + tail)) == WHOLE
    assert disk.quarantined() == [tail]


def test_a_zero_tail_of_many_megabytes_is_torn() -> None:
    assert verdict(WHOLE + bytes(64 * 1024 * 1024)) == (Verdict.TORN, len(WHOLE))


def test_a_search_among_what_cannot_be_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte looks like the start of an entry that is longer than the file."""
    monkeypatch.setattr(recovery, "SEARCH_CHECKED_BYTES_MAX", 1000 * recovery.CANDIDATE_BYTES)
    for count, expected in ((900, Verdict.TORN), (1100, Verdict.CORRUPT)):
        found = examined(WHOLE + b"\xff" * 40 + b"\1" * count)
        assert (found.verdict, found.valid_bytes) == (expected, len(WHOLE))
    assert "more behind it than can be searched" in found.reason


DAMAGED = {
    **{
        f"{name}, an entry behind": WHOLE + tail + entry(b"behind the damage, and whole")
        for name, tail in GARBAGE.items()
    },
    **{
        f"byte {position}": changed(WHOLE, position, 0xFF)
        for position in range(BOUNDARIES[5], BOUNDARIES[6])
        if position != BOUNDARIES[5] + 5  # the attributes, which nothing protects
    },
}


def same_crc_again(beginning: bytes, crc: int) -> bytes:
    """`beginning` and four bytes after which the CRC, `crc` before, is the same again."""
    rows: dict[int, tuple[int, int]] = {}  # by its highest bit: a change of the CRC, its four bytes
    without = zlib.crc32(beginning + bytes(4), crc)
    for bit in range(32):
        added = 1 << bit
        change = zlib.crc32(beginning + added.to_bytes(4, "little"), crc) ^ without
        while change and change.bit_length() in rows:
            known, by = rows[change.bit_length()]
            change, added = change ^ known, added ^ by
        rows[change.bit_length()] = change, added
    left, found = without ^ crc, 0
    while left:
        known, by = rows[left.bit_length()]
        left, found = left ^ known, found ^ by
    return beginning + found.to_bytes(4, "little")


def test_a_message_whose_crc_fits_everywhere_is_examined_in_bounded_work() -> None:
    """A torn write of 1 MB of it had 16 GB read at the start, one of 10 MB a hundred times that."""
    size = 1_000_000
    crc = zlib.crc32(b"begin")
    piece = same_crc_again((size // 2).to_bytes(4, "big") + bytes(4), crc)
    whole = b"begin" + piece * (2 * size // len(piece))
    written = entry(whole)
    torn = written[:6] + crc.to_bytes(4, "big") + written[10:size]
    read_bytes = 0

    def read(count: int, position: int) -> bytes:
        nonlocal read_bytes
        found = torn[position : position + count]
        read_bytes += len(found)
        return found

    found = recovery.examine(read, len(torn))
    assert read_bytes < 200 << 20
    assert found.verdict is Verdict.CORRUPT
    assert found.reason.endswith("with more in it than can be searched for its end")


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_whole_entries_behind_damage_are_neither_taken_for_log_nor_cut_off(
    disk: DataDirectory, data: bytes
) -> None:
    """The partition goes offline, untouched."""
    log = start_on(disk, data)
    assert log.state is LogState.OFFLINE
    assert "position" in log.state_reason
    assert (log.directory / disk.names()[0]).read_bytes() == data
    assert disk.quarantined() == []


@pytest.mark.parametrize("bit", range(8))
def test_one_flipped_bit_never_loses_whole_entries_in_silence(bit: int) -> None:
    """S6 and S7, over every byte: either the damage cannot be seen in 0.7's format (the result
    parses whole), or the verdict is corrupt, or nothing but the last entry is given up."""
    for position in range(len(WHOLE)):
        data = changed(WHOLE, position, 1 << bit)
        found = examined(data)
        damaged = max(boundary for boundary in BOUNDARIES if boundary <= position)
        is_last = damaged == BOUNDARIES[-2]
        if found.verdict is Verdict.CLEAN:
            header = 5 if data[damaged + 4] == 0 else 6
            is_empty = len(SETS[BOUNDARIES.index(damaged)]) == 10
            assert position - damaged < header or is_empty, "a damaged CRC or payload is good"
        else:
            expected = Verdict.TORN if is_last else Verdict.CORRUPT
            assert (found.verdict, found.valid_bytes) == (expected, damaged), position


def test_a_damaged_length_before_whole_entries_is_corrupt() -> None:
    """Any single flipped bit of a length: what follows is whole, so it is no torn ending."""
    for bit in range(32):
        data = changed(WHOLE, BOUNDARIES[3] + bit // 8, 1 << bit % 8)
        assert verdict(data)[0] is Verdict.CORRUPT, f"bit {bit}"


@pytest.mark.parametrize("lost", range(1, 12))
def test_a_sector_that_never_reached_the_disk_is_torn(lost: int) -> None:
    """Sectors of one write may arrive in any order: zeros in between, whole entries behind."""
    data = bytearray(b"".join(entry(random.Random(number).randbytes(700)) for number in range(10)))
    data[lost * 512 : (lost + 1) * 512] = bytes(512)
    assert verdict(bytes(data)) == (Verdict.TORN, lost * 512 // 710 * 710)


# --- content that looks like entries, and entries that are large ---------------------------------


def utf_16(number: int, characters: int = 100) -> bytes:
    text = "".join(chr(65 + (number + at) % 26) for at in range(characters))
    return entry(text.encode("utf-16-be"))


@pytest.mark.parametrize("within", [3, 5, 8, 50], ids=["length", "attributes", "CRC", "payload"])
def test_one_flipped_byte_in_utf_16_text_cuts_nothing(within: int) -> None:
    """Text in UTF-16 looks like the start of an entry at every character: a search for the next
    entry by its looks checksums for ever, and must not give up the rest for that."""
    sets = [utf_16(number) for number in range(30_000)]
    damaged = len(sets[0]) * 1000
    found = examined(changed(b"".join(sets), damaged + within, 0x10))
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
    damaged = len(small[0]) + len(large[0])
    data = changed(b"".join([small[0], *large, *small]), damaged + within, 0x04)
    assert verdict(data) == (Verdict.CORRUPT, damaged)


LARGE = {
    "UTF-16": utf_16(1, 150_000),
    "random": entry(random.Random(1).randbytes(300_000)),
    # Sets as payloads: what stands inside proves nothing.
    "carried by a mirror": entry(b"".join(utf_16(number, 1000) for number in range(150))),
}
# The broker takes any value of the unused bits.
LARGE["unused attributes"] = changed(LARGE["carried by a mirror"], 5, 0xFC)


@pytest.mark.parametrize("last", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("cut", [1, 511, 512, 100_000, 299_990, 299_998])
def test_a_torn_write_of_any_content_is_torn(last: bytes, cut: int) -> None:
    """SIGKILL in the middle of a write: the end of the file cuts the entry."""
    assert verdict(WHOLE + last[: len(last) - cut]) == (Verdict.TORN, len(WHOLE))


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
    position = int(where * len(b"".join(sets[:-1])))
    data = changed(b"".join(sets), position, change)
    assume(bytes(512) not in data)
    found = examined(data)
    if found.verdict is Verdict.TORN:
        # What parses differently may be good up to the last entry, no further.
        assert found.valid_bytes > position, found.reason


@pytest.mark.parametrize("read_bytes", [16, 100, 1000, 4096])
def test_entries_over_the_edge_of_what_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    rng = random.Random(1)
    data = b"".join(entry(rng.randbytes(rng.randint(0, 300))) for _ in range(200))
    data += entry(rng.randbytes(5000)) + entry(b"end")
    monkeypatch.setattr(recovery, "READ_BYTES", read_bytes)
    assert verdict(data) == (Verdict.CLEAN, len(data))
    assert examined(data).entry_count == 202
    assert verdict(data[:-1]) == (Verdict.TORN, len(data) - len(entry(b"end")))


def test_a_file_that_is_shorter_than_its_size_was_ends_there() -> None:
    """It was cut after its size was taken, or by something else than the broker."""
    for cut in range(len(WHOLE)):
        reads = iter(range(1000))

        def read(count: int, position: int, cut: int = cut, reads: Iterator[int] = reads) -> bytes:
            assert next(reads, None) is not None, "the same is read again and again"
            return WHOLE[position : min(position + count, cut)]

        found = recovery.examine(read, len(WHOLE))
        assert found.verdict is not Verdict.CLEAN
        assert found.valid_bytes == max(boundary for boundary in BOUNDARIES if boundary <= cut)


# --- the cut itself ------------------------------------------------------------------------------


def test_recovery_keeps_the_time_of_the_last_write(disk: DataDirectory) -> None:
    path = disk.put(WHOLE + b"\0\0")
    os.utime(path, (1_200_000_000, 1_200_000_000))
    assert disk.log().segments[0].time_ms == 1_200_000_000_000
    assert path.stat().st_mtime == 1_200_000_000


def test_copy_is_durable_before_the_cut(disk: DataDirectory) -> None:
    start_on(disk, WHOLE + b"torn")
    order = [step for step in disk.operations() if step not in ("read_at", "open")]
    copied = ["write_at", "sync_file", "sync_directory", "sync_directory"]
    assert order[order.index("write_at") :][:6] == [*copied, "truncate", "set_modified_ms"]


def test_a_second_torn_ending_gets_its_own_copy(disk: DataDirectory) -> None:
    for tail in (b"one", b"two"):
        start_on(disk, WHOLE + tail)
        disk.crash()
    assert disk.quarantined() == [b"one", b"two"]


@pytest.mark.parametrize("topic", ["t" * NAME_CHARACTERS_MAX, "ü" * 124])
def test_a_torn_ending_of_a_topic_with_a_long_name_is_cut(disk: DataDirectory, topic: str) -> None:
    """By recovery, and by the operator's command."""
    path = disk.put(WHOLE + b"torn", partition=f"{topic}-0")
    assert disk.open().logs[topic, 0].high_watermark == len(WHOLE)
    disk.crash()
    path.write_bytes(WHOLE + b"again")
    copy = some(dump.truncate_corrupt(path))
    assert copy.relative_to(disk.quarantine).parts[0] == path.parent.name
    assert disk.quarantined() == [b"again", b"torn"]


CLAIMED = {  # the first bytes of a segment of 64 MiB
    "more than there is": b"\x7f\xff\xff\xf0\1\0",
    "nearly all of it": b"\x03\xff\0\0\1\0",
    "nearly all of it, behind damage": changed(SETS[0], 12, 1) + b"\x03\xff\0\0\1\0",
    "nearly all of it, of no magic": b"\x03\xff\0\0\7\0",
}


@pytest.mark.parametrize("beginning", CLAIMED.values(), ids=CLAIMED)
def test_examination_allocates_no_more_than_its_reads(tmp_path: Path, beginning: bytes) -> None:
    """Whatever a length claims: one flipped bit of it had a whole segment in memory at once."""
    path = tmp_path / "segment"
    path.write_bytes(beginning)
    os.truncate(path, 64 * 1024 * 1024)
    files = FileLayer()
    fd = files.open(path)
    tracemalloc.start()
    found = recovery.examine_file(files, fd)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    files.close(fd)
    assert found.valid_bytes == 0
    assert peak < 32 * 1024 * 1024


def test_a_torn_write_of_any_size_is_torn() -> None:
    """Up to the largest that a length can say, also of entries in an entry."""
    for size in (2**20, 2**27, 2**28, 2**31 - 1):
        torn = size.to_bytes(4, "big") + b"\1\0\xca\xfe\xca\xfe" + WHOLE
        assert verdict(WHOLE + torn) == (Verdict.TORN, len(WHOLE)), size
