"""Whose copy is damaged: what certainly is, and what only differs."""

import zlib
from pathlib import Path

import pytest

from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.segment_sums import BLOCK_BYTES, Confirmed, SegmentSums, SumsJob
from kafka2011.broker.replica.comparing import Damage, Sums, compared_bytes, damages
from tests.support.raw_requests import entry

ENTRY = entry(b"x" * 990)
GOOD = ENTRY * 2500  # more than two blocks


def sums(path: Path, *segments: tuple[int, bytes], shorter: int = 0) -> Sums:
    """Of segments by start; of the last only so much less is confirmed."""
    found = []
    for number, (start, data) in enumerate(segments):
        file = path / f"{start:020d}.kafka"
        file.write_bytes(data)
        less = shorter if number == len(segments) - 1 else 0
        found.append(Confirmed(file, start, len(data) - less))
    job = SumsJob(FileLayer(), {"t-0": found})
    job.run()
    assert job.error is None
    return job.sums


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_equal_copies_of_different_length_do_not_differ(tmp_path: Path) -> None:
    one = sums(tmp_path, (0, GOOD), (len(GOOD), GOOD))
    two = sums(tmp_path, (0, GOOD), (len(GOOD), GOOD), shorter=len(ENTRY))
    assert damages({"a": one, "b": two}, "a") == []
    assert compared_bytes({"a": one, "b": two}) == 2 * len(GOOD) - len(ENTRY)


def test_sums_are_of_the_confirmed_part_alone(tmp_path: Path) -> None:
    [segment] = sums(tmp_path, (5000, GOOD + b"torn"), shorter=4)["t-0"]
    blocks = [GOOD[at : at + BLOCK_BYTES] for at in range(0, len(GOOD), BLOCK_BYTES)]
    assert segment == SegmentSums(5000, len(GOOD), -1, tuple(map(zlib.crc32, blocks)))


def test_a_flipped_bit_of_a_payload_is_found_in_the_copy_alone(tmp_path: Path) -> None:
    good = sums(tmp_path, (0, GOOD))
    bad = sums(tmp_path, (0, flipped(GOOD, 1500 * len(ENTRY) + 500)))
    [found] = damages({"a": good, "b": bad}, "a")
    at = 1500 * len(ENTRY)
    assert found == Damage("b", "t-0", 0, at, "an entry fails its check", True)
    [found] = damages({"a": bad, "b": good}, "a")
    assert (found.member, found.is_certain) == ("a", True)


@pytest.mark.parametrize("cut", [1, 5, 1000, 1500])
def test_a_file_that_ends_below_what_is_confirmed_is_damaged_there(
    tmp_path: Path, cut: int
) -> None:
    good = sums(tmp_path, (0, GOOD))
    whole = (len(GOOD) - cut) // len(ENTRY) * len(ENTRY)
    [found] = damages({"a": good, "b": sums(tmp_path, (0, GOOD[:-cut]), shorter=-cut)}, "a")
    assert found == Damage("b", "t-0", 0, whole, "an entry fails its check", True)


def test_what_checks_and_differs_is_certain_by_most_of_three(tmp_path: Path) -> None:
    good = sums(tmp_path, (0, GOOD))
    odd = sums(tmp_path, (0, GOOD[: 1200 * len(ENTRY)] + entry(b"y" * 990) * 1300))
    [found] = damages({"a": good, "b": good, "c": odd}, "a")
    assert (found.member, found.offset, found.is_certain) == ("c", BLOCK_BYTES, True)
    [found] = damages({"a": odd, "b": good, "c": good}, "a")
    assert (found.member, found.is_certain) == ("a", True)
    [found] = damages({"a": good, "b": odd}, "a")
    assert (found.member, found.is_certain) == ("b", False)


def test_other_segments_than_the_leader_has(tmp_path: Path) -> None:
    rolled = sums(tmp_path, (0, GOOD), (len(GOOD), GOOD))
    whole = sums(tmp_path, (0, GOOD + GOOD))
    found = damages({"a": rolled, "b": whole}, "a")
    assert {(one.member, one.is_certain) for one in found} == {("b", False)}
    # What retention has taken of one is no difference.
    [last] = [one for one in rolled["t-0"] if one.start]
    assert damages({"a": {"t-0": (last,)}, "b": rolled}, "a") == []


def test_a_segment_that_goes_meanwhile_and_a_stop(tmp_path: Path) -> None:
    gone = SumsJob(FileLayer(), {"t-0": [Confirmed(tmp_path / "gone.kafka", 0, 5)]})
    gone.run()
    assert (gone.error, gone.sums) == (None, {"t-0": ()})
    assert gone.gone == [("t-0", 0)]
    (tmp_path / "there").write_bytes(GOOD)
    stopped = SumsJob(FileLayer(), {"t-0": [Confirmed(tmp_path / "there", 0, len(GOOD))]})
    stopped.cancel()
    stopped.run()
    with pytest.raises(OSError, match="is stopping"):
        raise stopped.error or AssertionError
