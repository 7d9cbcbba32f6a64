"""A checkpoint is whole or not there."""

from pathlib import Path

import pytest

from kafka2011.services.site.checkpoint import CheckpointDamaged, load, save

POSITIONS = [["x", 1, 0, 100]]


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.json"
    assert load(file) is None
    save(file, POSITIONS, {"a": 1})
    save(file, POSITIONS, {"a": "ä\n"})
    assert load(file) == (POSITIONS, {"a": "ä\n"})
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_an_unfinished_one_beside_it_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.json"
    save(file, POSITIONS, {"a": 1})
    (tmp_path / ".checkpoint.json.unfinished").write_bytes(b"half of")
    assert load(file) == (POSITIONS, {"a": 1})


def test_any_change_is_noticed_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.json"
    save(file, POSITIONS, {"a": 1})
    good = file.read_bytes()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
            file.write_bytes(bad)
            with pytest.raises(CheckpointDamaged, match=f"delete the directory {tmp_path}"):
                load(file)
