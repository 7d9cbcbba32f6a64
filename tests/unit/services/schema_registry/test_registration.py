"""Decisions of the registry over a real SQLite file: ids, deletion, modes, references."""

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafka2011.services.schema_registry.avro import Limits
from kafka2011.services.schema_registry.errors import RequestRejected
from kafka2011.services.schema_registry.registration import RegistryCore
from kafka2011.services.schema_registry.store import RegistryStore
from kafka2011.services.schema_registry.views import Reference, Submitted
from tests.unit.services.schema_registry.schemas import field, record


@pytest.fixture
def core(tmp_path: Path) -> Iterator[RegistryCore]:
    store = RegistryStore(tmp_path / "registry.sqlite")
    yield RegistryCore(store, Limits())
    store.close()


def schema(name: str, **more: Any) -> Submitted:
    """A record with one optional field."""
    return Submitted(json.dumps(record(field(name, "int", default=0))), **more)


def required(name: str) -> Submitted:
    """A record with one field that must be there: incompatible with every other."""
    return Submitted(json.dumps(record(field(name, "int"))))


def seen(core: RegistryCore, question: str, *words: Any, **flags: Any) -> Any:
    return core.query(lambda view: getattr(view, question)(*words, **flags))


@contextlib.contextmanager
def refused(code: int, reason: str | None = None) -> Iterator[None]:
    with pytest.raises(RequestRejected, match=reason) as caught:
        yield
    assert caught.value.code == code


def test_registering_again_changes_nothing(core) -> None:
    first = core.register("s", schema("a"))
    assert core.register("s", schema("b")) == {"id": 2, "version": 2}
    assert core.register("s", schema("a")) == first == {"id": 1, "version": 1}
    assert seen(core, "lookup", "s", schema("a"))["version"] == 1


def test_a_softly_deleted_version_comes_back_as_a_new_one_with_its_id(core) -> None:
    core.register("s", schema("a"))
    with refused(40405):
        core.delete_subject("s", permanent=True)
    assert core.delete_subject("s") == [1]
    assert seen(core, "subjects") == []
    assert seen(core, "subjects", deleted=True) == seen(core, "subjects", only=True) == ["s"]
    assert seen(core, "schema_by_id", 1)["schema"] == schema("a").text
    assert core.register("s", schema("a")) == {"id": 1, "version": 2}


def test_levels_of_a_subject_and_of_all(core) -> None:
    core.register("s", schema("a"))
    core.set_level("", "none")
    assert seen(core, "level", "s", default_to_global=True) == "NONE"
    core.register("s", required("b"))
    core.set_level("s", "FULL")
    with refused(409):
        core.register("s", required("c"))
    assert core.unset_level("s") == "FULL"
    assert seen(core, "level_of", "s") == "NONE"


def test_a_reference_that_does_not_stand_is_refused(core) -> None:
    with refused(42201):
        core.register("s", Submitted('"R"', (Reference("R", "nothing", 1),)))
    core.register("base", schema("a"))
    core.register("s", Submitted('["null","R"]', (Reference("R", "base", -1),)))
    with refused(42206):
        core.delete_version("base", "1")
    core.delete_subject("s")
    assert core.delete_version("base", "latest") == 1


def test_the_newest_version_that_is_referred_to_is_one_that_is_not_deleted(core) -> None:
    core.register("base", schema("a"))
    core.register("base", schema("b"))
    core.delete_version("base", "2")
    newest = Reference("R", "base", -1)
    core.register("s", Submitted('["null","R"]', (newest,)))
    assert seen(core, "version", "s", "1")["references"] == [
        {"name": "R", "subject": "base", "version": 1}
    ]
    for version in ("latest", "-1", "1"):
        assert seen(core, "referenced_by", "base", version) == [3]
    # By its number a softly deleted version can be referred to.
    core.register("t", Submitted('["null","R"]', (Reference("R", "base", 2),)))
    assert seen(core, "referenced_by", "base", "2") == [4]
    core.delete_subject("s")
    core.delete_version("base", "1")
    with refused(42201, "'base' not found"):
        core.register("u", Submitted('["null","R"]', (newest,)))


def test_read_only_everywhere_wins_over_a_subjects_own_mode(core) -> None:
    core.set_mode("s", "READWRITE")
    core.set_mode("", "READONLY")
    core.register("s", schema("a"))
    core.set_mode("", "READONLY_OVERRIDE")
    with refused(42205):
        core.register("s", schema("b"))
    with refused(42205):
        core.set_mode("", "IMPORT")
    assert core.set_mode("", "IMPORT", force=True) == "IMPORT"


def test_import_keeps_ids_and_never_gives_one_two_meanings(core) -> None:
    with refused(42205, "not in import mode"):
        core.register("s", schema("a", id=100))
    core.set_mode("s", "IMPORT")
    for _ in range(2):
        assert core.register("s", schema("a", id=100, version=7)) == {"id": 100, "version": 7}
    with refused(42205, "Overwrite new schema with id 100"):
        core.register("s", schema("b", id=100))
    with refused(42207, "registered with id 100 instead of"):
        core.register("s", schema("a", id=101))
    with refused(42205, "not in read-write mode"):
        core.register("s", schema("c"))
    core.set_mode("s", "READWRITE")
    assert core.register("s", schema("c")) == {"id": 101, "version": 8}


def test_a_versions_number_does_not_come_back(core) -> None:
    def delete(version: str) -> None:
        core.delete_version("s", version)
        core.delete_version("s", version, permanent=True)

    core.register("s", schema("a"))
    core.register("s", schema("b"))
    delete("2")
    assert core.register("s", schema("c")) == {"id": 3, "version": 3}
    delete("1")
    delete("3")
    assert core.register("s", schema("b")) == {"id": 2, "version": 4}
    core.delete_subject("s")
    core.delete_subject("s", permanent=True)
    assert core.register("s", schema("d")) == {"id": 4, "version": 1}


def test_settings_of_what_is_read_only_stay(core) -> None:
    core.set_level("s", "FULL")
    core.set_mode("s", "READONLY")
    with refused(42205, "read-only"):
        core.unset_level("s")
    assert core.unset_mode("s") == "READONLY"
    assert core.unset_level("s") == "FULL"
    core.set_mode("t", "READWRITE")
    core.set_mode("", "READONLY")
    with refused(42205, "read-only"):
        core.unset_mode("t")
    assert core.unset_mode("") == "READONLY"
    assert core.unset_mode("t") == "READWRITE"


def test_readers_do_not_wait_for_a_writer(core) -> None:
    core.register("s", schema("a"))
    with core._lock, core._store.transaction():  # a writer in the middle of it
        core._store.add_version("s", 2, 1)
        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(seen, core, "versions", "s") for _ in range(8)]
            assert [each.result(timeout=60) for each in found] == [[1]] * 8
    assert seen(core, "versions", "s") == [1, 2]


def test_a_refusal_leaves_the_reader_usable(core) -> None:
    for _ in range(3):
        with pytest.raises(RequestRejected):
            seen(core, "schema_by_id", 9)
    core.register("s", schema("a"))
    assert seen(core, "schema_by_id", 1)["schema"] == schema("a").text


def test_two_processes_with_one_file_give_no_version_twice(core, tmp_path: Path) -> None:
    """As where a new registry is started before the old one has ended."""
    with contextlib.closing(RegistryStore(tmp_path / "registry.sqlite")) as store:
        other = RegistryCore(store, Limits())
        with ThreadPoolExecutor(2) as pool:
            made = [
                pool.submit(each.register, "s", schema(f"{name}{number}"))
                for number in range(40)
                for name, each in (("a", core), ("b", other))
            ]
            answers = [each.result(timeout=60) for each in made]
    assert sorted(answer["version"] for answer in answers) == [*range(1, 81)]
    for answer in answers:
        assert seen(core, "version", "s", str(answer["version"]))["id"] == answer["id"]
