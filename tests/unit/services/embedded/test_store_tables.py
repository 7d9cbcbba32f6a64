"""Whose the tables in a store are: nothing is deleted that another deployment has written."""

import json
from pathlib import Path

import pytest

from kafka2011.runtime import object_store
from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.embedded.config import EmbeddedConfig, store_prefix
from kafka2011.services.embedded.control import DirectoryRefused
from kafka2011.services.embedded.running import recorded_tables
from kafka2011.services.embedded.store_tables import (
    check_goes_with,
    take,
)
from tests.support.object_store import BUCKET, ObjectStore

TABLES = ObjectPath(BUCKET, "demo/tables")


def names(store: ObjectStore) -> list[str]:
    return [name for name in store.objects() if name[-1] != "/"]


def test_a_prefix_is_one_deployments_which_alone_may_empty_it(
    tmp_path: Path, store: ObjectStore
) -> None:
    object_store.write((TABLES.parent / "tables-of-others").address, b"stays")
    take(TABLES, tmp_path / "one", is_emptied=True)
    object_store.write((TABLES / "page_view" / "rows").address, b"rows")
    take(TABLES, tmp_path / "one", is_emptied=False)
    assert "demo/tables/page_view/rows" in names(store)
    with pytest.raises(DirectoryRefused, match="belongs to the deployment"):
        take(TABLES, tmp_path / "other", is_emptied=True)
    assert "demo/tables/page_view/rows" in names(store)
    take(TABLES, tmp_path / "one", is_emptied=True)
    assert names(store) == ["demo/tables-of-others", "demo/tables.kafka2011-embedded"]


def test_objects_of_others_and_a_store_that_is_away_are_refused(
    tmp_path: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "RETRY_FOR_S", 0.0)
    object_store.write((TABLES / "access_log" / "rows").address, b"rows")
    with pytest.raises(DirectoryRefused, match="not made by this command"):
        take(TABLES, tmp_path, is_emptied=True)
    assert names(store) == ["demo/tables/access_log/rows"]
    with pytest.raises(DirectoryRefused, match="s3://nowhere-to-be/found"):
        take(ObjectPath("nowhere-to-be", "found"), tmp_path, is_emptied=True)


def test_what_a_directory_holds_goes_with_the_tables_that_it_was_loaded_into(
    tmp_path: Path,
) -> None:
    assert recorded_tables(tmp_path) is None
    check_goes_with(TABLES, tmp_path)
    (tmp_path / "run").mkdir()
    for recorded in (str(TABLES), "/elsewhere/before/it/was/moved/warehouse"):
        state = {"environment": {"KAFKA2011_WAREHOUSE_DIR": recorded}}
        (tmp_path / "run" / "loader.json").write_text(json.dumps(state))
        tables = EmbeddedConfig(warehouse=TABLES if recorded == str(TABLES) else None).tables(
            tmp_path
        )
        assert recorded_tables(tmp_path) == tables
        check_goes_with(tables, tmp_path)
        with pytest.raises(DirectoryRefused, match="is loaded into"):
            check_goes_with(ObjectPath(BUCKET, "other"), tmp_path)


@pytest.mark.parametrize("text", ["var/warehouse", "s3://warehouse", "gs://bucket/prefix"])
def test_only_a_prefix_in_a_store_can_be_named(text: str) -> None:
    with pytest.raises(ValueError, match="s3://bucket/prefix"):
        store_prefix(text)
    assert store_prefix("") is None
