"""The launcher: a row of the table becomes a command that loads settings and runs the entry."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka2011.cli.commands import COMMANDS, Command, Process, Serves, ShortOption
from kafka2011.cli.launcher import _named, usual_words
from kafka2011.runtime.config import settings_of
from tests.conftest import Run

PROCESSES = {name: row.run for name, row in COMMANDS.items() if isinstance(row.run, Process)}
SERVED = {name: row.serves.process for name, row in COMMANDS.items() if row.serves is not None}

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


@pytest.mark.parametrize("reads", [usual_words, lambda *_: None], ids=["usual words", "typer"])
def test_the_entry_gets_the_settings_and_its_status_is_the_commands(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, reads: Any
) -> None:
    monkeypatch.setattr("kafka2011.cli.main.usual_words", reads)
    file = tmp_path / "proxy.properties"
    file.write_text("proxy.routes=a=h:1>h:2\nproxy.retry.max.ms=9\n")
    monkeypatch.setitem(COMMANDS, "proxy", Command("", SAMPLE))
    words = ["--proxy-routes", "b=h:3>h:4", "--set", "proxy.retry.min.ms=5"]
    assert run("proxy", file, *words).status == 7
    config, stop = started.pop()
    assert [route.name for route in config.routes] == ["b"]
    assert (config.retry_max_ms, config.retry_min_ms) == (9, 5)
    assert not stop.is_set()


SERVING = {"a": Command("", "module", serves=Serves(SAMPLE, "serve")), "p": Command("", SAMPLE)}
SERVING["z"] = Command("", "module", serves=Serves(SAMPLE, "run", is_default=True))
ROUTES = {"proxy_routes": "a=1>2"}
USUAL = {
    "p": (None, [], {}),
    "p file --set a=b --set c=d=e": (Path("file"), ["a=b", "c=d=e"], {}),
    "p --set=a=b file --proxy-routes a=1>2": (Path("file"), ["a=b"], ROUTES),
    "p --proxy-routes=a=1>2": (None, [], ROUTES),
    "a serve": (None, [], {}),
    "a serve file --set a=b": (Path("file"), ["a=b"], {}),
    "z": (None, [], {}),
    "z --set a=b file": (Path("file"), ["a=b"], {}),
    "z run file": (Path("file"), [], {}),
}
UNUSUAL = ("p --help", "p -h", "p a b", "p --set", "p --set --help", "p --else 1", "p - x", "p --")
OTHERS = ("a", "a --set a=b", "a file", "z file", "z ls", "z --help", "z --whitelist t")


@pytest.mark.parametrize("line", [*USUAL, *UNUSUAL, *OTHERS])
def test_the_usual_words_are_read_and_all_others_left_to_typer(line: str) -> None:
    name, *words = line.split()
    found = usual_words(SERVING[name], words)
    assert found == ((SAMPLE, *USUAL[line]) if line in USUAL else None)


@pytest.mark.parametrize(
    "process", [*PROCESSES.values(), *SERVED.values()], ids=[*PROCESSES, *SERVED]
)
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
