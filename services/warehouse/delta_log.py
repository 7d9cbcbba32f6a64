"""Reads the Delta log of a table: commits and app transactions.

delta-rs finds one app transaction by name but cannot list them, and its `history()` reads the whole
log each time. The log's layout is a published protocol, so this module reads the files:

    _delta_log/00000000000000000007.json            one JSON action a line: commitInfo, add, txn ...
    _delta_log/00000000000000000100.checkpoint.parquet   the state up to that version; column `txn`
    _delta_log/_last_checkpoint                     {"version": 100, ...}

Never writes. A commit or checkpoint that is damaged, as a power failure may leave it, or is not
there any more, is a DamagedLog; `_last_checkpoint` is a hint.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse import storage
from kafka2011.services.warehouse.errors import DamagedLog

Action = dict[str, Any]

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\..*)?\.parquet")


def _log_directory(table_path: StoragePath) -> StoragePath:
    return table_path / storage.LOG_DIRECTORY


@contextlib.contextmanager
def _read_as_a_log(file: StoragePath) -> Iterator[None]:
    """Raises DamagedLog for what the block finds wrong in the file. An OSError says by itself what
    it is about."""
    try:
        yield
    except (ValueError, KeyError, TypeError, RecursionError, pa.ArrowException) as error:
        raise DamagedLog(f"{file} is damaged: {first_line(error)}") from error


def _commit_file(table_path: StoragePath, version: int) -> StoragePath:
    return _log_directory(table_path) / f"{version:020d}.json"


def is_table(table_path: StoragePath) -> bool:
    """Whether a commit was ever made there; a directory `_delta_log` alone is no table."""
    try:
        names = storage.names(_log_directory(table_path))
        return any(_COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in names)
    except (FileNotFoundError, NotADirectoryError):
        return False


def versions(table_path: StoragePath) -> list[int]:
    """The versions that still have a commit file, ascending; empty when there is no table."""
    try:
        names = [*storage.names(_log_directory(table_path))]
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for name in names if (found := _COMMIT.fullmatch(name)))


def actions(table_path: StoragePath, version: int) -> list[Action]:
    """The actions of one commit. Raises FileNotFoundError when it has no file, or no longer."""
    file = _commit_file(table_path, version)
    with _read_as_a_log(file):
        # Not splitlines(): JSON has other line ends in its texts as they are, such as U+2028.
        lines = file.read_text(encoding="utf-8").split("\n")
        return [dict(json.loads(line)) for line in lines if line.strip()]


def commits_after(
    table_path: StoragePath, since_version: int
) -> Iterator[tuple[int, list[Action]]]:
    """Each commit above `since_version` (-1: all), in order.

    Log clean-up removes old commits (30 days by default): a first version above
    `since_version` + 1 means that some were removed.
    """
    version = since_version + 1
    if not _commit_file(table_path, version).exists():
        later = [found for found in versions(table_path) if found > since_version]
        if not later:
            return
        version = later[0]
    while True:
        try:
            found = actions(table_path, version)
        except FileNotFoundError:
            return
        yield version, found
        version += 1


def app_transactions(table_path: StoragePath) -> dict[str, int]:
    """Every app transaction of the newest version: app id -> its version.

    Raises DamagedLog where the log does not have all of them any more.
    """
    found = _transactions_since(table_path, _hinted_version(table_path))
    if found is None:  # a hint is older than its log in a copy, or after a write that was not done
        found = _transactions_since(table_path, _newest_checkpoint(table_path))
    if found is None:
        directory = _log_directory(table_path)
        raise DamagedLog(f"{directory} lacks commits that no checkpoint in it has")
    return found


def _transactions_since(table_path: StoragePath, checkpoint: int | None) -> dict[str, int] | None:
    """The transactions of that checkpoint (None: of the empty table) and the commits behind it;
    None where one of these is not there."""
    found: dict[str, int] = {}
    if checkpoint is not None:
        files = _checkpoint_files(table_path, checkpoint)
        if not files:
            return None
        for file in files:
            with _read_as_a_log(file):
                for row in storage.read_columns(file, ["txn"]).column("txn").to_pylist():
                    if row and row["appId"] is not None:
                        found[row["appId"]] = row["version"]
    expected = 0 if checkpoint is None else checkpoint + 1
    for version, commit in commits_after(table_path, expected - 1):
        if version != expected:
            return None
        expected += 1
        with _read_as_a_log(_commit_file(table_path, version)):
            for action in commit:
                if "txn" in action:
                    found[action["txn"]["appId"]] = int(action["txn"]["version"])
    return found


def _hinted_version(table_path: StoragePath) -> int | None:
    """The checkpoint that the log says is the newest; None where it does not, or in a file that is
    damaged: it is a hint, and the checkpoints are listed then."""
    file = _log_directory(table_path) / "_last_checkpoint"
    try:
        with _read_as_a_log(file):
            return int(json.loads(file.read_text())["version"])
    except (FileNotFoundError, DamagedLog):
        return None


def _newest_checkpoint(table_path: StoragePath) -> int | None:
    names = storage.names(_log_directory(table_path))
    found = (_CHECKPOINT.fullmatch(name) for name in names)
    return max((int(name[1]) for name in found if name), default=None)


def _checkpoint_files(table_path: StoragePath, version: int) -> list[StoragePath]:
    return sorted(
        entry
        for entry in _log_directory(table_path).iterdir()
        if (found := _CHECKPOINT.fullmatch(entry.name)) and int(found[1]) == version
    )
