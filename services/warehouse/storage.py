"""What the warehouse does differently in a directory and in an object store.

Everything else is the same code over `kafka2011.runtime.storage_paths.StoragePath`. Importing this
module loads Arrow and delta-rs.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kafka2011.runtime import object_store
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.storage_paths import ObjectPath, StoragePath

LOG_DIRECTORY = "_delta_log"
REQUESTS_AT_ONCE = 8
_STORE = "s3://"
_DECODED = re.compile(r"%[0-9A-Fa-f]{2}|\\")  # a path's text that would be read as another

Done = TypeVar("Done")


def options(place: StoragePath) -> dict[str, str] | None:
    """The options with which delta-rs opens a table there."""
    return object_store.delta_options() if isinstance(place, ObjectPath) else None


def why_unusable(place: StoragePath) -> str:
    """Why delta-rs could not open a table there, which it would create all the same; else empty.

    It decodes a path when it opens a table, and not when it creates one; a file:// URL, too.
    """
    found = None if isinstance(place, ObjectPath) else _DECODED.search(str(place.resolve()))
    if found is None:
        return ""
    return f"delta-rs opens no table with {found[0]!r} in its path: rename the directory"


def open_table(place: StoragePath) -> DeltaTable:
    """The Delta table at its newest version. Raises TableNotFoundError, DeltaError, OSError."""
    return DeltaTable(str(place), storage_options=options(place))


@contextlib.contextmanager
def no_panic() -> Iterator[None]:
    """Raises DeltaError where delta-rs panics, as it does at a query of a table with `[` in its
    path: a panic is no Exception to Python, and would end the process."""
    try:
        yield
    except BaseException as panic:
        if type(panic).__name__ != "PanicException":
            raise
        raise DeltaError(f"delta-rs panicked: {first_line(panic)}") from panic


def files_of(table: DeltaTable) -> list[str]:
    """The files of the table's version: absolute paths, or URLs of a store."""
    return [unquote(str(uri).removeprefix("file://")) for uri in table.file_uris()]


def names(directory: StoragePath) -> Iterator[str]:
    """The names in a directory, read as they are asked for. Raises FileNotFoundError, OSError."""
    if isinstance(directory, Path):
        with os.scandir(directory) as entries:
            yield from (entry.name for entry in entries)
    else:
        yield from (entry.name for entry in directory.iterdir())


def inner_table(path: StoragePath) -> StoragePath | None:
    """A table in a directory below the table at `path`; None where there is none."""
    if isinstance(path, ObjectPath):
        for name in object_store.names_below(path.address):
            above, found, _ = f"{name}/".partition(f"/{LOG_DIRECTORY}/")
            if found:
                return path / above
        return None
    for directory, inside, _ in os.walk(str(path)):
        if directory == str(path):
            inside[:] = [name for name in inside if name != LOG_DIRECTORY]
        elif LOG_DIRECTORY in inside:
            return Path(directory)
    return None


def _source(file: StoragePath | str) -> dict[str, Any]:
    text = str(file)
    if text.startswith(_STORE):
        return {"source": text.removeprefix(_STORE), "filesystem": object_store.files()}
    return {"source": text}


def parquet_file(file: StoragePath | str) -> pq.ParquetFile:
    """An open Parquet file. Raises FileNotFoundError, OSError, ArrowInvalid."""
    return pq.ParquetFile(**_source(file))


def read_columns(file: StoragePath | str, columns: list[str]) -> pa.Table:
    """Some columns of a Parquet file, from the file alone. Raises KeyError for one that is not
    there, and as `parquet_file`."""
    with parquet_file(file) as opened:
        return opened.read(columns).select(columns)


def dataset(files: Sequence[str], schema: pa.Schema, path: StoragePath) -> Any:
    """Files of the table at `path`, with the table's columns: null where a file lacks one."""
    import pyarrow.dataset as ds  # loads pandas: seconds on a busy machine

    return ds.dataset(
        [file.removeprefix(_STORE) for file in files],
        schema=schema,
        filesystem=object_store.files() if isinstance(path, ObjectPath) else None,
        format="parquet",
        partition_base_dir=str(path).removeprefix(_STORE),  # a name above it is no column
        partitioning=ds.partitioning(pa.schema([schema.field("hour")]), flavor="hive"),
    )


def all_done(
    place: StoragePath, jobs: Sequence[Callable[[], Done]], on_done: Callable[[Done], None]
) -> None:
    """Run jobs that write there: in order in a directory, several at once in a store.

    `on_done` gets the result of each that is done, in order, before the first error is raised.
    """
    if not isinstance(place, ObjectPath) or len(jobs) == 1:
        for job in jobs:
            on_done(job())
        return
    failed: BaseException | None = None
    with ThreadPoolExecutor(REQUESTS_AT_ONCE, "store") as pool:
        for future in [pool.submit(job) for job in jobs]:
            error = future.exception()
            if error is None:
                on_done(future.result())
            else:
                failed = failed or error
    if failed is not None:
        raise failed
