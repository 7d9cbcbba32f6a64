"""The command's dispatch: help, unknown names, exit statuses."""

import json
import re

import pytest

from kafka2011.cli.commands import COMMANDS, Command
from kafka2011.cli.main import accept_all_file_names, help_text
from kafka2011.runtime.program import program
from tests.support import commands
from tests.unit.cli.conftest import Ran, Run


def test_help_lists_every_command_and_is_printed_without_one_too(run: Run) -> None:
    assert all(name in help_text() for name in COMMANDS)
    assert run("--help") == Ran(0, help_text() + "\n", "")
    assert run() == Ran(2, help_text() + "\n", "")


def test_a_misspelt_command_is_one_line_with_a_hint(run: Run) -> None:
    hint = f"no command 'brokr'; did you mean broker? ({program()} --help lists them)"
    assert run("brokr") == Ran(2, "", f"kafka2011: {hint}\n")


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str, run: Run) -> None:
    status, out, _ = run(name, "--help")
    assert status == 0
    assert "Usage" in out
    assert not re.search(r"[{<](?!log\.dir)[a-z]+", out), "values are named in capitals"


def test_completion_knows_the_commands_and_the_options_of_one(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("_KAFKA2011_COMPLETE", "complete_bash")
    for line, word, found in (
        ("kafka2011 to", 1, {"topics"}),
        ("kafka2011 topics des", 2, {"describe"}),
        ("kafka2011 console-consumer --from", 2, {"--from-beginning"}),
    ):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(word))
        status, out, _ = run()
        assert (status, set(out.split())) == (0, found), line


def test_bad_setting_is_one_line_and_status_2() -> None:
    done = commands.run("broker", "--set", "brokerid=zero", status=2)
    assert done.stderr.count("\n") == 1
    assert "brokerid" in done.stderr


def test_processes_do_not_load_what_only_developers_look_at() -> None:
    code = (
        "import sys; from kafka2011.cli.main import import_logging_alone; import_logging_alone(); "
        "import kafka2011.runtime.logs; assert 'rich' not in sys.modules; "
        "import structlog.dev, rich; assert structlog.dev.rich is None"
    )
    commands.run_python("-c", code)


def test_a_missing_extra_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setitem(COMMANDS, "sql", Command("", "no_such_module.sql", "spark"))
    line = "kafka2011: sql needs no_such_module: pip install 'kafka2011[spark]'\n"
    assert run("sql", "select 1") == Ran(1, "", line)


def test_settings_of_one_process_are_listed(run: Run) -> None:
    status, out, _ = run("settings", "broker", "--json")
    rows = json.loads(out)
    assert status == 0
    assert {row["process"] for row in rows} == {"broker"}
    [port] = [row for row in rows if row["setting"] == "port"]
    assert (port["variable"], port["default"]) == ("KAFKA2011_PORT", "6667")
    assert run("settings", "brokr").status == 2


@pytest.mark.parametrize(
    ("given", "locale"),
    [
        ({}, "C.UTF-8"),
        ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({"LC_ALL": "", "LANG": "POSIX"}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8"}, None),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, None),
        ({"LC_ALL": "de_DE.ISO-8859-1"}, "de_DE.ISO-8859-1"),
    ],
)
def test_a_jvm_below_finds_files_of_any_name(given: dict[str, str], locale: str | None) -> None:
    environment = dict(given)
    accept_all_file_names(environment)
    assert (environment.get("LC_ALL") or None) == locale
