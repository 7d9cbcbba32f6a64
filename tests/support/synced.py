"""What was made durable: the files and directories that were synced, in order."""

import os
from pathlib import Path

import pytest


class Synced:
    """Notes every `os.fsync`: the path, and for a directory the names in it at that moment."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.all: list[tuple[Path, frozenset[str]]] = []
        self._fsync = os.fsync
        patch.setattr(os, "fsync", self._noted)

    def _noted(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self.all.append((path, frozenset(os.listdir(path) if path.is_dir() else ())))
        self._fsync(descriptor)

    def has_name(self, path: Path) -> bool:
        """Whether a power failure leaves `path` under its name, and the directories above it that
        were made in the test."""
        return any(at == path.parent and path.name in names for at, names in self.all)
