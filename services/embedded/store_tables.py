"""The tables of an embedded deployment in an object store: a prefix of its own.

The demo begins by deleting them, as it empties its directory. So a prefix must be empty at its
first use, which puts a mark beside it, `<prefix>.kafka2011-embedded`, with machine and directory of
the deployment.
"""

import json
import platform
from pathlib import Path
from typing import Any

from kafka2011.runtime import object_store
from kafka2011.runtime.storage_paths import ObjectPath, StoragePath
from kafka2011.services.embedded.control import DirectoryRefused
from kafka2011.services.embedded.running import recorded_tables

MARK_SUFFIX = ".kafka2011-embedded"


def take(tables: ObjectPath, root: Path, *, is_emptied: bool) -> None:
    """Make the prefix this deployment's, and delete what is there where `is_emptied`.

    Raises DirectoryRefused when it is another deployment's or holds objects without a mark, before
    anything is deleted; and when the store fails.
    """
    ours = {"machine": platform.node(), "directory": str(root)}
    mark = tables.parent / f"{tables.name}{MARK_SUFFIX}"
    try:
        is_there = tables.is_dir()
        owner = _owner(mark)
        if owner not in (None, ours):
            raise DirectoryRefused(
                f"{tables} belongs to the deployment {owner}; choose another prefix"
            )
        if owner is None and is_there:
            raise DirectoryRefused(
                f"{tables} holds objects that were not made by this command; choose another prefix"
            )
        if is_emptied and is_there:
            object_store.remove_below(tables.address)
        if owner is None:
            object_store.write(mark.address, json.dumps(ours).encode())
    except OSError as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise DirectoryRefused(f"{tables}: {reason}") from None


def _owner(mark: ObjectPath) -> Any:
    """The deployment that the mark names; None when there is no mark. Raises OSError."""
    try:
        return json.loads(mark.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return "with an unreadable mark"


def check_goes_with(tables: StoragePath, root: Path) -> None:
    """Raises DirectoryRefused when what is in `root` has been loaded into other tables."""
    recorded = recorded_tables(root)
    if recorded is not None and recorded != tables:
        raise DirectoryRefused(
            f"what {root} holds is loaded into {recorded}: name that (make: WAREHOUSE=, "
            "--warehouse), or choose another directory"
        )
