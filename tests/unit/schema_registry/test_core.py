"""Decisions of the registry over a real SQLite file: ids, deletion, modes, references."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.schema_registry.avro import Limits
from services.schema_registry.core import Reference, RegistryCore, Submitted
from services.schema_registry.errors import RegistryError
from services.schema_registry.store import RegistryStore


@pytest.fixture
def core(tmp_path: Path) -> Iterator[RegistryCore]:
    store = RegistryStore(tmp_path / "registry.sqlite")
    yield RegistryCore(store, Limits())
    store.close()


def schema(*names: str, default: int | None = 0) -> Submitted:
    extra = {} if default is None else {"default": default}
    fields = [{"name": name, "type": "int", **extra} for name in names]
    return Submitted(json.dumps({"type": "record", "name": "R", "fields": fields}))


def code(caught: pytest.ExceptionInfo[RegistryError]) -> int:
    return caught.value.code


def test_registering_again_changes_nothing(core: RegistryCore) -> None:
    first = core.register("s", schema("a"))
    assert core.register("s", schema("b")) == {"id": 2, "version": 2}
    assert core.register("s", schema("a")) == first == {"id": 1, "version": 1}
    assert core.lookup("s", schema("a"))["version"] == 1


def test_a_softly_deleted_version_comes_back_as_a_new_one_with_its_id(core: RegistryCore) -> None:
    core.register("s", schema("a"))
    with pytest.raises(RegistryError) as caught:
        core.delete_subject("s", permanent=True)
    assert code(caught) == 40405
    assert core.delete_subject("s") == [1]
    assert core.subjects() == []
    assert core.subjects(deleted=True) == core.subjects(only=True) == ["s"]
    assert core.schema_by_id(1)["schema"] == schema("a").text
    assert core.register("s", schema("a")) == {"id": 1, "version": 2}


def test_levels_of_a_subject_and_of_all(core: RegistryCore) -> None:
    core.register("s", schema("a"))
    core.set_level("", "none")
    assert core.level("s", default_to_global=True) == "NONE"
    core.register("s", schema("b", default=None))
    core.set_level("s", "FULL")
    with pytest.raises(RegistryError) as caught:
        core.register("s", schema("c", default=None))
    assert code(caught) == 409
    assert core.unset_level("s") == "FULL"
    assert core.level_of("s") == "NONE"


def test_a_reference_that_does_not_stand_is_refused(core: RegistryCore) -> None:
    with pytest.raises(RegistryError) as caught:
        core.register("s", Submitted('"R"', (Reference("R", "nothing", 1),)))
    assert code(caught) == 42201
    core.register("base", schema("a"))
    core.register("s", Submitted('["null","R"]', (Reference("R", "base", -1),)))
    with pytest.raises(RegistryError) as caught:
        core.delete_version("base", "1")
    assert code(caught) == 42206
    core.delete_subject("s")
    assert core.delete_version("base", "latest") == 1


def test_read_only_everywhere_wins_over_a_subjects_own_mode(core: RegistryCore) -> None:
    core.set_mode("s", "READWRITE")
    core.set_mode("", "READONLY")
    core.register("s", schema("a"))
    core.set_mode("", "READONLY_OVERRIDE")
    with pytest.raises(RegistryError) as caught:
        core.register("s", schema("b"))
    assert code(caught) == 42205
    with pytest.raises(RegistryError) as caught:
        core.set_mode("", "IMPORT")
    assert code(caught) == 42205
    assert core.set_mode("", "IMPORT", force=True) == "IMPORT"
