"""The tables of an embedded deployment in an object store: a prefix that is its alone.

The demo begins by deleting them, as it empties its directory. So a prefix must be empty the first
time, and then has a mark beside it, `<prefix>.kafka2011-embedded`, that names machine and directory
of the deployment. `recorded_tables` is where the processes of a directory had their tables.
"""

import json
import platform
from pathlib import Path
from typing import Any

from kafka2011.runtime import object_store
from kafka2011.runtime.config import environment_name
from kafka2011.runtime.places import Place, StorePath, place
from kafka2011.services.embedded.control import DirectoryRefused

MARK_SUFFIX = ".kafka2011-embedded"


def take(tables: StorePath, root: Path, *, is_emptied: bool) -> None:
    """Make the prefix this deployment's, and delete what is there where `is_emptied`.

    Raises DirectoryRefused when it holds anything that another has written, or goes not with what
    is in `root`, or the store does not answer; then nothing is deleted.
    """
    ours = {"machine": platform.node(), "directory": str(root)}
    mark = tables.parent / f"{tables.name}{MARK_SUFFIX}"
    try:
        is_there = tables.is_dir()
        owner = _owner(mark)
        if owner not in (None, ours):
            raise DirectoryRefused(f"{tables} is of the deployment {owner}; choose another prefix")
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


def _owner(mark: StorePath) -> Any:
    """Whose the prefix is; None when there is no mark. Raises OSError."""
    try:
        return json.loads(mark.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return "with an unreadable mark"


def recorded_tables(root: Path) -> Place | None:
    """Where the loader of the deployment in `root` puts its tables; None where there was none."""
    try:
        state = json.loads((root / "run" / "loader.json").read_text(encoding="utf-8"))
        found = place(state["environment"][environment_name("warehouse.dir")])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # The directory may have been moved since, with the tables in it.
    return found if isinstance(found, StorePath) else root / "warehouse"


def check_goes_with(tables: Place, root: Path) -> None:
    """Raises DirectoryRefused when what is in `root` has been loaded into other tables."""
    recorded = recorded_tables(root)
    if recorded is not None and recorded != tables:
        raise DirectoryRefused(
            f"what {root} holds is loaded into {recorded}: name that (make: WAREHOUSE=, "
            "--warehouse), or choose another directory"
        )
