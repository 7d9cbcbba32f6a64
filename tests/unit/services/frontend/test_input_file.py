"""An access log by its content: packed, damaged, or nothing that can be read."""

import bz2
import gzip
import lzma
import random
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kafka2011.services.frontend import input_file
from kafka2011.services.frontend.input_file import InputFile, InputRefused, check_whole, examine
from kafka2011.services.frontend.lines import LineReader
from kafka2011.services.frontend.sources import AccessLogSource, Batch
from tests.support.clock import ManualClock

LINE = b'h - - [17/May/2015:10:05:03 +0000] "GET /%d HTTP/1.1" 200 5\n'
TEXT = b"".join(LINE % number for number in range(5000))
NOW_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)


def zstd(data: bytes) -> bytes:
    """With a checksum, as the command packs."""
    if sys.version_info >= (3, 14):
        from compression.zstd import CompressionParameter, compress
    else:
        from backports.zstd import CompressionParameter, compress
    return compress(data, options={CompressionParameter.checksum_flag: 1})


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
}
kinds = pytest.mark.parametrize("kind", PACKERS)


def written(directory: Path, data: bytes) -> Path:
    path = directory / "access.log.1"
    path.write_bytes(data)
    return path


@kinds
def test_an_input_is_read_by_its_content(kind: str, tmp_path: Path) -> None:
    pack, half = PACKERS[kind], len(TEXT) // 2
    # Two pieces, as rotated logs are joined by cat.
    path = written(tmp_path, pack(TEXT[:half]) + pack(TEXT[half:]))
    sample = examine(path)
    assert (sample.kind, sample.lines, sample.readable) == (kind, 1000, 1000)
    check_whole(path)
    with InputFile(path) as file:
        for offset in (len(TEXT) - 10, 0, half + 1):
            assert file.seek(offset) == offset
            assert b"".join(iter(lambda: file.read(70_000), b"")) == TEXT[offset:]
        assert LineReader(file, 10**9).next_lines() == []


@kinds
def test_a_source_goes_on_where_it_was(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, PACKERS[kind](TEXT))

    def batches(position: object) -> list[Batch]:
        source = AccessLogSource(
            path, run_id=bytes(8), server="s", service="v", clock=ManualClock(), position=position
        )
        found = list(iter(source.next_batch, None))
        source.close()
        return found

    whole = batches(None)
    assert len(whole) > 9
    at = whole[2].position
    assert AccessLogSource.can_continue(path, at)
    left = [event for batch in whole[3:] for event in batch.events]
    assert [event for batch in batches(at) for event in batch.events] == left
    written(tmp_path, PACKERS[kind](TEXT.replace(b" 200 ", b" 404 ")))
    assert not AccessLogSource.can_continue(path, at)
    assert AccessLogSource.can_continue(path, at[:2])  # of a version that kept no anchor
    written(tmp_path, PACKERS[kind](TEXT[: at[0] - 1]))
    assert not AccessLogSource.can_continue(path, at)


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damage_is_one_line(kind: str, damage: str, tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(100_000)  # packs badly, so there is a middle
    packed = bytearray(PACKERS[kind](TEXT + noise))
    if damage == "cut":
        del packed[-50_000:]
    else:
        packed[len(packed) // 2] ^= 0xFF
    path = written(tmp_path, packed)
    with pytest.raises(InputRefused, match=f"its {kind} data is damaged or cut off") as refused:
        check_whole(path)
    assert "\n" not in str(refused.value)


RANDOM = random.Random(2011).randbytes(200_000)
FAR = b'h - - [17/May/9999:10:05:03 +0000] "GET / HTTP/1.1" 200 5\n'


@pytest.mark.parametrize(
    ("data", "log_format", "reason"),
    [
        (b"", "auto", "is empty"),
        (gzip.compress(b"", mtime=0), "auto", "is empty"),
        (RANDOM, "auto", r"nothing of the first \d+ lines can be read; line 1 is .{20,600}\.\.\.;"),
        (b"\n" * 3, "auto", "nothing of the first 3 lines can be read; line 1 is '';"),
        (b"hello", "auto", "nothing of its only line can be read; line 1 is 'hello'; expected is "),
        (b"\x00\xff", "auto", r"line 1 is '\\x00\\xff';"),
        ("gr\xfc\xdfe\n".encode() * 2, "auto", "line 1 is 'gr\xfc\xdfe';"),
        (b"hello\n" * 2 + LINE % 1, "auto", "1 of the first 3 lines can be read; line 1 is 'h"),
        (TEXT, "%h %t %r %s", "line 1 is 'h - .*; expected is the given format, %h %t %r %s"),
        (b"x" * 9_000_000, "auto", r"line 1, above 4,194,304 bytes is 'xxx"),
        (b"x" * 5_000_000 + b"\n\n\n", "auto", r"line 1, above 4,194,304 bytes is 'xxx"),
        (b"PK\x03\x04\0\0", "auto", "is a zip archive: unpack it"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_first_line(
    data: bytes, log_format: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InputRefused, match=reason) as refused:
        examine(written(tmp_path, data), log_format)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1200


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (TEXT, r"1,000 of the first 1,000 lines can be read, dated 2015-05-17 \(UTC\)$"),
        (b"hello\n" + LINE % 1, r"1 of the first 2 lines can be read, dated 2015-05-17 \(UTC\)$"),
        (
            gzip.compress(LINE % 1 + FAR, mtime=0),
            "gzip, 2 .* to 9999-05-17 .UTC., which is in the future",
        ),
        (LINE.replace(b"2015", b"0001") % 1, r"dated 0001-05-17 \(UTC\)$"),
        (b"x" * 5_000_000 + b"\n" + LINE % 1, "1 of the first 2 lines"),
    ],
)
def test_what_can_be_read_is_described(data: bytes, said: str, tmp_path: Path) -> None:
    found = input_file.described(examine(written(tmp_path, data)), NOW_MS)
    assert re.search(said, found), found


def test_a_log_of_which_under_half_was_read_is_one_line() -> None:
    sent = {"access-log": 50, "access-log-unreadable": 50}
    assert input_file.mostly_unreadable(sent) == ""
    found = input_file.mostly_unreadable({**sent, "access-log": 49})
    assert found.startswith("only 49 of 99 lines of the input could be read")
    assert input_file.mostly_unreadable({"page-view": 1}) == ""
