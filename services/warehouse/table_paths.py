"""The directories of a warehouse's tables: which one a topic's rows have, which one its quarantine.

<warehouse.dir>/<table>                     the rows of a topic
<warehouse.dir>/quarantine-tables/<table>   its messages that could not become rows
<warehouse.dir>/quarantine/<table>          the same, in older warehouses: still used if it exists

Any client can name a topic, and no name may lead to another topic's table or out of the warehouse.
A table belongs to the topic that its log names (`owner_of`), and stays where it is. A new one has
the topic's name with `_` for `-`, unless that is taken, reserved or no plain word: then it has a
name of its own, which ends with a hash of the topic. Names that differ only by case, or by what a
view's name cannot have, count as one. No table's name has a `-`, so `quarantine-tables` is none.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence

from kafka2011.events.topics import TOPICS, table_name
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse import delta_log
from kafka2011.services.warehouse.delta_table import HOUR_COLUMN, loaded_topics, owner_of

QUARANTINE = "quarantine-tables"
QUARANTINE_BEFORE = "quarantine"
QUARANTINED = "quarantine_"  # in front of the name of a quarantine table's view
RAW = "raw_"  # in front of the name of a topic's view

FILE_NAME_BYTES_MAX = 255
STEM_CHARACTERS_MAX = 100
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._]*")
_WITH_HASH = re.compile(r".*__[0-9a-f]{16}")


def view_name(name: str) -> str:
    """A table's name with `_` for what SQL does not allow in a view's, such as a topic's dots."""
    return re.sub(r"\W", "_", name)


def _key(name: str) -> str:
    """The key that names share which a file system, or views, could not tell apart."""
    return view_name(name).casefold()


# Names that only this topic may have ("": none): the shipped topics', and other entries' names.
_RESERVED = {
    **{_key(table_name(topic)): topic for topic in TOPICS},
    QUARANTINE_BEFORE: "",
    "schemas_json": "",
    "schemas_json_new": "",
}


def unique_name(topic: str) -> str:
    """A table name that no other topic has: a plain beginning, and a hash of the topic."""
    stem = re.sub(r"[^A-Za-z0-9]", "_", topic).lstrip("_")[:STEM_CHARACTERS_MAX]
    digest = hashlib.sha256(topic.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{stem or 'topic'}__{digest}"


def may_have_plain_name(topic: str) -> bool:
    """Whether a new table of the topic may be named `table_name(topic)`, if that is free."""
    name = table_name(topic)
    key = _key(name)
    return (
        _PLAIN.fullmatch(name) is not None
        and len(name) <= FILE_NAME_BYTES_MAX
        and _WITH_HASH.fullmatch(key) is None
        and not key.startswith(QUARANTINED)
        and _RESERVED.get(key, topic) == topic
    )


def plain_path(parent: StoragePath, topic: str) -> StoragePath | None:
    """Where older warehouses have the topic's table; None if that cannot be a directory's name."""
    name = table_name(topic)
    is_name = name not in ("", ".", "..") and "/" not in name and "\0" not in name
    if not is_name or len(name.encode("utf-8", "surrogatepass")) > FILE_NAME_BYTES_MAX:
        return None
    return parent / name


def rows_directories(warehouse_dir: StoragePath) -> list[StoragePath]:
    """The directories that may hold tables of rows; new ones are made in the first."""
    return [warehouse_dir]


def quarantine_directories(warehouse_dir: StoragePath) -> list[StoragePath]:
    """The directories that may hold quarantine tables; new ones are made in the first."""
    return [warehouse_dir / QUARANTINE, warehouse_dir / QUARANTINE_BEFORE]


def find_table(parents: Sequence[StoragePath], topic: str) -> StoragePath | None:
    """The topic's own table below one of `parents`; None where there is none yet.

    A table that names no topic belongs to the topic with its plain name.
    """
    for parent in parents:
        path = parent / unique_name(topic)
        if delta_log.is_table(path) and owner_of(path) == topic:
            return path
        plain = plain_path(parent, topic)
        if plain is not None and delta_log.is_table(plain):
            owner = owner_of(plain)
            if owner == topic or (owner is None and may_have_plain_name(topic)):
                return plain
    return None


def find_shared_table(parents: Sequence[StoragePath], topic: str) -> StoragePath | None:
    """Another topic's table into which earlier versions loaded this topic as well."""
    for parent in parents:
        plain = plain_path(parent, topic)
        if (
            plain is not None
            and delta_log.is_table(plain)
            and topic in loaded_topics(plain)
            and owner_of(plain) != topic
        ):
            return plain
    return None


class TablePlaces:
    """Finds the directories of topics' tables in a warehouse, and chooses those of new ones.

    Names that were chosen are kept for their topics, so that two new ones of the same load differ.
    Two processes may choose the same one; the first to create the table has it. Not thread-safe.
    """

    def __init__(self, warehouse_dir: StoragePath) -> None:
        self._rows = rows_directories(warehouse_dir)
        self._quarantine = quarantine_directories(warehouse_dir)
        self._chosen: dict[tuple[StoragePath, str], str] = {}
        self._taken: dict[StoragePath, set[str]] = {}

    def look_again(self) -> None:
        """Have the next choice read the directories anew."""
        self._taken.clear()

    def rows(self, topic: str) -> StoragePath:
        return self._place(self._rows, topic)

    def quarantine(self, topic: str) -> StoragePath:
        return self._place(self._quarantine, topic)

    def shared_rows(self, topic: str) -> StoragePath | None:
        return find_shared_table(self._rows, topic)

    def shared_quarantine(self, topic: str) -> StoragePath | None:
        return find_shared_table(self._quarantine, topic)

    def _place(self, parents: Sequence[StoragePath], topic: str) -> StoragePath:
        found = find_table(parents, topic)
        if found is not None:
            return found
        parent, name = parents[0], table_name(topic)
        if not may_have_plain_name(topic) or self._is_taken(parent, name, topic):
            name = unique_name(topic)
        self._chosen[parent, _key(name)] = topic
        return parent / name

    def _is_taken(self, parent: StoragePath, name: str, topic: str) -> bool:
        if parent not in self._taken:
            self._taken[parent] = {
                _key(entry.name) for entry in _entries(parent) if _is_used(entry)
            }
        key = _key(name)
        return key in self._taken[parent] or self._chosen.get((parent, key), topic) != topic


def _entries(directory: StoragePath) -> list[StoragePath]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _is_used(entry: StoragePath) -> bool:
    """Whether it is a table, or holds anything but files of loads that were never committed."""
    if not entry.is_dir() or delta_log.is_table(entry):
        return True
    known = ("_delta_log", f"{HOUR_COLUMN}=")
    return any(not inside.name.startswith(known) for inside in entry.iterdir())


def table_directories(parents: Sequence[StoragePath]) -> Iterator[StoragePath]:
    """Every table directly below one of `parents`."""
    for parent in parents:
        yield from (entry for entry in _entries(parent) if delta_log.is_table(entry))


def all_tables(warehouse_dir: StoragePath) -> list[StoragePath]:
    """Every table of the warehouse, those of the quarantine included."""
    parents = [*rows_directories(warehouse_dir), *quarantine_directories(warehouse_dir)]
    return [*table_directories(parents)]


def tables_in(warehouse_dir: StoragePath) -> dict[str, StoragePath]:
    """View name -> table directory, for every table of the warehouse.

    Where two tables would have one view name, the table of exactly this name gets it, and the
    other's view has a name with a hash.
    """
    wanted = []
    for prefix, parents in (
        ("", rows_directories(warehouse_dir)),
        (QUARANTINED, quarantine_directories(warehouse_dir)),
    ):
        wanted += [(prefix + path.name, path) for path in table_directories(parents)]
    found: dict[str, StoragePath] = {}
    keys: set[str] = set()
    for name, path in sorted(wanted, key=lambda one: view_name(one[0]) != one[0]):
        view = view_name(name)
        if view.casefold() in keys:
            view = unique_name(str(path).removeprefix(f"{warehouse_dir}/"))
        keys.add(view.casefold())
        found[view] = path
    return dict(sorted(found.items()))


def quarantine_view(warehouse_dir: StoragePath, topic: str) -> str:
    """View name of the topic's messages in quarantine; "" where there is no such table."""
    parents = quarantine_directories(warehouse_dir)
    path = find_table(parents, topic) or find_shared_table(parents, topic)
    return next((name for name, each in tables_in(warehouse_dir).items() if each == path), "")
