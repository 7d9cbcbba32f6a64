"""The command's dispatch: help, unknown names, exit statuses."""

import json
import subprocess
import sys

import pytest

from kafka2011.cli.commands import COMMANDS, Command
from kafka2011.cli.main import help_text, run
from tests import ROOT


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in COMMANDS)
    assert printed.rstrip("\n") == help_text()


def test_no_command_prints_help_and_exits_2() -> None:
    with pytest.raises(SystemExit) as ended:
        run([])
    assert ended.value.code == 2


def test_a_misspelt_command_is_one_line_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["brokr"])
    assert ended.value.code == 2
    assert "did you mean broker?" in capsys.readouterr().err


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run([name, "--help"])
    assert ended.value.code == 0
    assert "Usage" in capsys.readouterr().out


def test_bad_setting_is_one_line_and_status_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafka2011", "broker", "--set", "brokerid=zero"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "brokerid" in done.stderr


def test_processes_do_not_load_what_only_developers_look_at() -> None:
    code = (
        "import sys; from kafka2011.cli.main import import_logging_alone; import_logging_alone(); "
        "import kafka2011.runtime.logs; assert 'rich' not in sys.modules; "
        "import structlog.dev, rich; assert structlog.dev.rich is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_missing_extra_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "sql", Command("", "no_such_module.sql", "spark"))
    with pytest.raises(SystemExit) as ended:
        run(["sql", "select 1"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "kafka2011: sql needs no_such_module: pip install 'kafka2011[spark]'\n"
    )


def test_settings_of_one_process_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["settings", "broker", "--json"])
    assert ended.value.code == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["process"] for row in rows} == {"broker"}
    [port] = [row for row in rows if row["setting"] == "port"]
    assert (port["variable"], port["default"]) == ("KAFKA2011_PORT", "6667")
    with pytest.raises(SystemExit) as ended:
        run(["settings", "brokr"])
    assert ended.value.code == 2
