"""Whether an object store can hold the warehouse: above all, whether it keeps two writers apart.

A load is published by a PUT that must fail where the object is there already. Some stores do so for
writers that come one after another, but let two that come at the same instant both win: one load is
lost then, though both count as published. Only a race shows it. So WRITERS commit to a scratch
table from one version, all at once, ROUNDS times, and the table's log is compared with the store's
answers.
"""

import contextlib
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from kafka2011.runtime import object_store
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import ObjectPath
from kafka2011.services.warehouse import delta_log, storage
from kafka2011.services.warehouse.delta_table import COMMIT_KEY

ROUNDS = 50
WRITERS = 8
ROUND_TIMEOUT_S = 60
SCRATCH = ".kafka2011-check-"
_SCHEMA = pa.schema([("n", pa.int64())])
_DATA = bytes(range(256)) * 16


class Round(NamedTuple):
    """The commits that the store has accepted, and those that the log has."""

    accepted: Sequence[str]
    logged: Sequence[str]


class Unfit(Exception):
    """The store cannot hold the warehouse; the text is one line that says why."""


def judge(rounds: Sequence[Round]) -> str:
    """What was wrong in the race, in one line; empty when nothing was.

    A writer that is refused although its commit stands has only lost the store's answer.
    """
    lost = [one for one in rounds if set(one.accepted) - set(one.logged)]
    if lost:
        return (
            f"the store is not atomic: in {len(lost)} of {len(rounds)} rounds of a race a writer "
            "had its commit accepted, and another's is in its place. A load would be lost"
        )
    twice = [one for one in rounds if len(one.logged) != 1]
    if twice:
        return f"in {len(twice)} of {len(rounds)} rounds of a race not one commit but others stood"
    return ""


def check_store(place: ObjectPath, *, rounds: int = ROUNDS, writers: int = WRITERS) -> str:
    """Write, read, list, delete and race below `place`; returns what was done, in one line.

    Raises Unfit when the store cannot hold the warehouse, or does not answer.
    """
    scratch = place / f"{SCRATCH}{uuid.uuid4().hex}"
    try:
        _one_after_another(scratch)
        problem = judge(_race(scratch / "race", rounds, writers))
    except (DeltaError, OSError) as error:
        raise Unfit(f"the store does not do what is needed: {first_line(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            object_store.remove_below(scratch.address)
    if problem:
        raise Unfit(problem)
    return (
        f"{place} can hold the warehouse: {writers} writers raced {rounds} times, and one won each"
    )


def _one_after_another(scratch: ObjectPath) -> None:
    """Check single requests, one after another. Raises OSError, Unfit."""
    file = scratch / "directory" / "a file=1"
    object_store.write(file.address, _DATA)
    if file.read_bytes() != _DATA:
        raise Unfit("the store returns bytes other than those written")
    with object_store.files().open_input_file(file.address) as opened:
        opened.seek(1000)
        if opened.read(7) != _DATA[1000:1007]:
            raise Unfit("the store returns another range of bytes than it was asked for")
    if [*storage.names(scratch)] != ["directory"]:
        raise Unfit("the store does not list what was written")
    file.unlink()
    if file.exists():
        raise Unfit("the store still lists what was deleted")


def _race(path: ObjectPath, rounds: int, writers: int) -> list[Round]:
    DeltaTable.create(str(path), _SCHEMA, storage_options=storage.options(path))
    tables = [storage.open_table(path) for _ in range(writers)]
    start = threading.Barrier(writers)
    found = []
    with ThreadPoolExecutor(writers, "race") as pool:
        for number in range(rounds):
            version = tables[0].version()

            def commit(table: DeltaTable, writer: int, number: int = number) -> str:
                name = f"{number}-{writer}"
                start.wait(ROUND_TIMEOUT_S)
                try:
                    table.create_write_transaction(
                        [],
                        "append",
                        table.schema(),
                        commit_properties=CommitProperties(
                            custom_metadata={COMMIT_KEY: name},
                            app_transactions=[Transaction("race", number)],
                        ),
                    )
                except CommitFailedError:
                    return ""
                return name

            answers = [*pool.map(commit, tables, range(writers))]
            logged = [
                action["commitInfo"][COMMIT_KEY]
                for _, actions in delta_log.commits_after(path, version)
                for action in actions
                if COMMIT_KEY in action.get("commitInfo", {})
            ]
            found.append(Round([name for name in answers if name], logged))
            for table in tables:
                table.update_incremental()
    return found
