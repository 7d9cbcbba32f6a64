"""The launcher: a row of the table becomes a command that loads settings and runs the entry."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka2011.cli.commands import COMMANDS, Command, Process, ShortOption
from kafka2011.cli.launcher import _named
from kafka2011.runtime.config import settings_of
from tests.unit.cli.conftest import Run

PROCESSES = {name: row.run for name, row in COMMANDS.items() if isinstance(row.run, Process)}

SAMPLE = Process(
    "kafka2011.services.proxy.config:ProxyConfig",
    f"{__name__}:entry",
    "Record the configuration.",
    (ShortOption("--proxy-routes", "proxy.routes", str, "the routes"),),
)

started: list[tuple[Any, threading.Event]] = []


def entry(config: Any, stop: threading.Event) -> int:
    started.append((config, stop))
    return 7


def test_the_entry_gets_the_settings_and_its_status_is_the_commands(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "proxy.properties"
    file.write_text("proxy.routes=a=h:1>h:2\nproxy.retry.max.ms=9\n")
    monkeypatch.setitem(COMMANDS, "proxy", Command("", SAMPLE))
    words = ["--proxy-routes", "b=h:3>h:4", "--set", "proxy.retry.min.ms=5"]
    assert run("proxy", file, *words).status == 7
    config, stop = started.pop()
    assert [route.name for route in config.routes] == ["b"]
    assert (config.retry_max_ms, config.retry_min_ms) == (9, 5)
    assert not stop.is_set()


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_every_row_names_what_is_there(process: Process) -> None:
    settings = settings_of(_named(process.config_class))
    assert {option.setting for option in process.options} <= set(settings)
    assert callable(_named(process.entry))


@pytest.mark.parametrize("name", PROCESSES)
def test_help_imports_neither_the_settings_nor_the_service(
    name: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    module = PROCESSES[name].config_class.partition(":")[0]
    monkeypatch.setitem(sys.modules, module, None)  # an import would fail
    status, out, _ = run(name, "--help")
    assert status == 0
    assert all(option.flag in out for option in PROCESSES[name].options)
