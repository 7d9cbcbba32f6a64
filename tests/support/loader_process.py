"""Loads without Spark and its JVM: the plan, the files and the commits are those of the load job.

`load_here` loads once in the test's process. To be killed, a process that loads again and again:

    python -m tests.support.loader_process     settings from the environment, until it is killed

Each load that did anything is a line of JSON on standard output.
"""

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.load.job import Loader, LoadOutcome
from tests.support.zookeeper import registry_at

INTERVAL_S = 0.02


def run_here(function: Any, tasks: Any) -> Any:
    return [function(task) for task in tasks]


@contextlib.contextmanager
def loader_of(config: WarehouseConfig) -> Iterator[Loader]:
    with (
        registry_at(config.zk_connect) as registry,
        contextlib.closing(Loader(config, registry, run_here, 2)) as loader,
    ):
        yield loader


def load_here(config: WarehouseConfig) -> LoadOutcome:
    """What one load did; AssertionError when some of it failed."""
    with loader_of(config) as loader:
        outcome = loader.load()
    assert not outcome.failures, outcome.failures
    return outcome


def main() -> None:
    with loader_of(load_or_exit(WarehouseConfig, None, [])) as loader:
        load_on(loader)


def load_on(loader: Loader) -> None:
    while True:
        outcome = loader.load()
        if outcome.rows or outcome.lost_to_another or outcome.failures:
            line = {
                "rows": outcome.rows,
                "lost": outcome.lost_to_another,
                "failures": outcome.failures,
                "retries": outcome.store_retries,
            }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        threading.Event().wait(INTERVAL_S)


if __name__ == "__main__":
    main()
