"""A stream's checkpoint in an object store: what a new process finds there, and who may write."""

from pathlib import Path

import pytest

from kafka2011.runtime import object_store
from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.warehouse.streams.store_checkpoint import (
    OBJECTS,
    CheckpointLost,
    StoreCheckpoint,
)
from tests.support.object_store import BUCKET, CUT, LOST, ObjectStore

PLACE = ObjectPath(BUCKET, "streams/checkpoints/job")


def started(tmp_path: Path, name: str) -> StoreCheckpoint:
    checkpoint = StoreCheckpoint(PLACE, tmp_path / name)
    checkpoint.local.mkdir()
    checkpoint.restore()
    return checkpoint


def put(checkpoint: StoreCheckpoint, **files: str) -> None:
    """Write files; `__` in a name is a slash."""
    for name, text in files.items():
        path = checkpoint.local / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def files_of(checkpoint: StoreCheckpoint) -> dict[str, str]:
    return {
        path.relative_to(checkpoint.local).as_posix(): path.read_text()
        for path in checkpoint.local.rglob("*")
        if path.is_file()
    }


def stored_objects(store: ObjectStore) -> list[str]:
    # Arrow leaves one for the directory.
    return [name for name in store.objects() if f"/{OBJECTS}/" in name and name[-1] != "/"]


def test_another_process_finds_what_was_published_last(tmp_path: Path, store: ObjectStore) -> None:
    first = started(tmp_path, "first")
    put(first, metadata="id", offsets__0="a", state__0__0__1="s")
    put(first, **{"offsets__.0.crc": "sum"})
    first.publish()
    (first.local / "state/0/0/1").unlink()
    put(first, offsets__1="b", commits__0="c", state__0__0__2="t", metadata="changed")
    first.publish()
    put(first, offsets__2="not published")
    second = started(tmp_path, "second")
    expected = {"metadata": "changed", "offsets/0": "a", "offsets/1": "b", "commits/0": "c"}
    assert files_of(second) == {**expected, "state/0/0/2": "t"}
    # Five files and their list: nothing that is not needed stays.
    assert len(stored_objects(store)) == 6
    put(second, offsets__2="d")
    second.publish()
    assert files_of(started(tmp_path, "third"))["offsets/2"] == "d"


def test_one_that_runs_elsewhere_publishes_nothing_more(tmp_path: Path, store: ObjectStore) -> None:
    first = started(tmp_path, "first")
    put(first, offsets__0="a")
    first.publish()
    second = started(tmp_path, "second")
    put(first, offsets__1="of the first")
    with pytest.raises(CheckpointLost, match="taken over by another process"):
        first.publish()
    put(second, offsets__1="of the second")
    second.publish()
    found = files_of(started(tmp_path, "third"))
    assert found == {"offsets/0": "a", "offsets/1": "of the second"}
    assert len(stored_objects(store)) == 3, "what the first had uploaded is gone"


@pytest.mark.parametrize("fault", [CUT, LOST])
def test_a_commit_whose_answer_is_lost_is_ones_own(
    tmp_path: Path, store: ObjectStore, fault: str
) -> None:
    first = started(tmp_path, "first")
    put(first, offsets__0="a")
    left = [1]

    def once(method: str, key: str) -> str | None:
        if method == "PUT" and "_delta_log" in key and left:
            left.pop()
            return fault
        return None

    store.fault = once
    first.publish()
    assert not left
    put(first, offsets__1="b")
    first.publish()
    assert files_of(started(tmp_path, "second")) == {"offsets/0": "a", "offsets/1": "b"}


def test_what_fails_on_the_way_leaves_what_was_there(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.runtime.object_store.RETRY_FOR_S", 0.0)
    first = started(tmp_path, "first")
    put(first, offsets__0="a")
    first.publish()
    put(first, offsets__1="b")
    store.fault = lambda method, key: "busy" if method == "PUT" and OBJECTS in key else None
    with pytest.raises(CheckpointLost, match="streams/checkpoints/job"):
        first.publish()
    store.fault = lambda _method, _key: None
    assert files_of(started(tmp_path, "second")) == {"offsets/0": "a"}


def test_a_damaged_commit_is_named_in_one_line(tmp_path: Path, store: ObjectStore) -> None:
    started(tmp_path, "first").publish()
    newest = max(key for key in store.objects() if key.endswith(".json"))
    place = ObjectPath(BUCKET, newest)
    object_store.write(place.address, place.read_bytes() + b"{}")  # delta-rs passes over it
    with pytest.raises(CheckpointLost, match=f"{newest} is damaged"):
        started(tmp_path, "second")
