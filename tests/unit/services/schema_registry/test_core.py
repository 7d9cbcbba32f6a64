"""Decisions of the registry over a real SQLite file: ids, deletion, modes, references."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafka2011.services.schema_registry.avro import Limits
from kafka2011.services.schema_registry.core import RegistryCore
from kafka2011.services.schema_registry.errors import RegistryError
from kafka2011.services.schema_registry.store import RegistryStore
from kafka2011.services.schema_registry.views import Reference, Submitted


@pytest.fixture
def core(tmp_path: Path) -> Iterator[RegistryCore]:
    store = RegistryStore(tmp_path / "registry.sqlite")
    yield RegistryCore(store, Limits())
    store.close()


def schema(*names: str, default: int | None = 0) -> Submitted:
    extra = {} if default is None else {"default": default}
    fields = [{"name": name, "type": "int", **extra} for name in names]
    return Submitted(json.dumps({"type": "record", "name": "R", "fields": fields}))


def seen(core: RegistryCore, question: str, *words: Any, **flags: Any) -> Any:
    return core.query(lambda view: getattr(view, question)(*words, **flags))


def code(caught: pytest.ExceptionInfo[RegistryError]) -> int:
    return caught.value.code


def test_registering_again_changes_nothing(core: RegistryCore) -> None:
    first = core.register("s", schema("a"))
    assert core.register("s", schema("b")) == {"id": 2, "version": 2}
    assert core.register("s", schema("a")) == first == {"id": 1, "version": 1}
    assert seen(core, "lookup", "s", schema("a"))["version"] == 1


def test_a_softly_deleted_version_comes_back_as_a_new_one_with_its_id(core: RegistryCore) -> None:
    core.register("s", schema("a"))
    with pytest.raises(RegistryError) as caught:
        core.delete_subject("s", permanent=True)
    assert code(caught) == 40405
    assert core.delete_subject("s") == [1]
    assert seen(core, "subjects") == []
    assert seen(core, "subjects", deleted=True) == seen(core, "subjects", only=True) == ["s"]
    assert seen(core, "schema_by_id", 1)["schema"] == schema("a").text
    assert core.register("s", schema("a")) == {"id": 1, "version": 2}


def test_levels_of_a_subject_and_of_all(core: RegistryCore) -> None:
    core.register("s", schema("a"))
    core.set_level("", "none")
    assert seen(core, "level", "s", default_to_global=True) == "NONE"
    core.register("s", schema("b", default=None))
    core.set_level("s", "FULL")
    with pytest.raises(RegistryError) as caught:
        core.register("s", schema("c", default=None))
    assert code(caught) == 409
    assert core.unset_level("s") == "FULL"
    assert seen(core, "level_of", "s") == "NONE"


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


def imported(number: int, *names: str, version: int | None = None) -> Submitted:
    return Submitted(schema(*names).text, id=number, version=version)


def test_import_keeps_ids_and_never_gives_one_two_meanings(core: RegistryCore) -> None:
    with pytest.raises(RegistryError, match="not in import mode") as caught:
        core.register("s", imported(100, "a"))
    assert code(caught) == 42205
    core.set_mode("s", "IMPORT")
    assert core.register("s", imported(100, "a", version=7)) == {"id": 100, "version": 7}
    assert core.register("s", imported(100, "a", version=7)) == {"id": 100, "version": 7}
    with pytest.raises(RegistryError, match="Overwrite new schema with id 100") as caught:
        core.register("s", imported(100, "b"))
    assert code(caught) == 42205
    with pytest.raises(RegistryError, match="registered with id 100 instead of") as caught:
        core.register("s", imported(101, "a"))
    assert code(caught) == 42207
    with pytest.raises(RegistryError, match="not in read-write mode") as caught:
        core.register("s", schema("c"))
    assert code(caught) == 42205
    core.set_mode("s", "READWRITE")
    assert core.register("s", schema("c")) == {"id": 101, "version": 8}


def test_a_versions_number_does_not_come_back(core: RegistryCore) -> None:
    core.register("s", schema("a"))
    core.register("s", schema("b"))
    core.delete_version("s", "2")
    core.delete_version("s", "2", permanent=True)
    assert core.register("s", schema("c")) == {"id": 3, "version": 3}
    for number in ("1", "3"):
        core.delete_version("s", number)
        core.delete_version("s", number, permanent=True)
    assert core.register("s", schema("b")) == {"id": 2, "version": 4}
    core.delete_subject("s")
    core.delete_subject("s", permanent=True)
    assert core.register("s", schema("d")) == {"id": 4, "version": 1}


def test_settings_of_what_is_read_only_stay(core: RegistryCore) -> None:
    core.set_level("s", "FULL")
    core.set_mode("s", "READONLY")
    with pytest.raises(RegistryError, match="read-only") as caught:
        core.unset_level("s")
    assert code(caught) == 42205
    assert core.unset_mode("s") == "READONLY"
    assert core.unset_level("s") == "FULL"
    core.set_mode("t", "READWRITE")
    core.set_mode("", "READONLY")
    with pytest.raises(RegistryError, match="read-only"):
        core.unset_mode("t")
    assert core.unset_mode("") == "READONLY"
    assert core.unset_mode("t") == "READWRITE"


def test_who_asks_does_not_wait_for_who_writes(core: RegistryCore) -> None:
    core.register("s", schema("a"))
    with core._lock, core._store.transaction():  # a writer in the middle of it
        core._store.add_version("s", 2, 1)
        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(seen, core, "versions", "s") for _ in range(8)]
            assert [each.result(timeout=20) for each in found] == [[1]] * 8
    assert seen(core, "versions", "s") == [1, 2]


def test_a_refusal_leaves_the_reader_usable(core: RegistryCore) -> None:
    for _ in range(3):
        with pytest.raises(RegistryError):
            seen(core, "schema_by_id", 9)
    core.register("s", schema("a"))
    assert seen(core, "schema_by_id", 1)["schema"] == schema("a").text
