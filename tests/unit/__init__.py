"""Unit tests mirror the tree; those in this folder hold its files against each other."""

import os
from collections.abc import Iterable
from pathlib import Path

from tests import ROOT


def text_of(path: str | Path) -> str:
    """The text of a file of the project."""
    return (ROOT / path).read_text(encoding="utf-8")


def files_below(rooms: Iterable[str], *endings: str) -> list[Path]:
    """The files with these endings in folders of the project, also behind the package's links."""
    return sorted(
        Path(folder, name)
        for room in rooms
        for folder, _, names in os.walk(ROOT / room, followlinks=True)
        for name in names
        if name.endswith(endings)
    )
