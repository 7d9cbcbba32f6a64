"""The directories of a warehouse's tables.

<warehouse.dir>/<table>              the rows of a topic
<warehouse.dir>/quarantine/<table>   its messages that could not become rows
"""

import re
from pathlib import Path

from kafka2011.events.topics import table_name

QUARANTINE = "quarantine"
QUARANTINED = f"{QUARANTINE}_"  # in front of the name of a quarantine table's view


def table_path(warehouse_dir: Path, topic: str) -> Path:
    return warehouse_dir / table_name(topic)


def quarantine_path(warehouse_dir: Path, topic: str) -> Path:
    return warehouse_dir / QUARANTINE / table_name(topic)


def tables_in(warehouse_dir: Path) -> dict[str, Path]:
    """View name -> table directory, for every table of the warehouse.

    A view's name has `_` for characters that SQL does not allow in one, such as a topic's dots.
    """
    found = {}
    for prefix, directory in (("", warehouse_dir), (QUARANTINED, warehouse_dir / QUARANTINE)):
        if directory.is_dir():
            for entry in sorted(directory.iterdir()):
                if (entry / "_delta_log").is_dir():
                    found[re.sub(r"\W", "_", prefix + entry.name)] = entry
    return found
