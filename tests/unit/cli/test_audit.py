"""`kafka2011 audit` without a running service: it recounts from the files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kafka2011.cli.audit import app
from kafka2011.cli.audit_table import printable, window_text, worst_of
from kafka2011.events.topics import AUDIT, PAGE_VIEW
from kafka2011.protocol import message_set
from tests.unit.services.audit.samples import T0, entries_of, event, report, write_log


@pytest.fixture
def var(tmp_path: Path) -> Path:
    """The directory of an embedded deployment that was stopped: 20 page views everywhere."""
    views = message_set.encode([event(n) for n in range(20)])
    live, offline = tmp_path / "broker-1" / "logs", tmp_path / "broker-11" / "logs"
    write_log(live, AUDIT, 0, message_set.encode([report(0, [(PAGE_VIEW, T0, 20)])]))
    write_log(live, PAGE_VIEW, 0, views)
    write_log(offline, PAGE_VIEW, 0, views)
    run = tmp_path / "run"
    run.mkdir()
    for name, datacenter in (("broker-1", "live"), ("broker-11", "offline")):
        (run / f"{name}.json").write_text(json.dumps({"name": name, "datacenter": datacenter}))
    return tmp_path


def audit(var: Path, *words: str) -> Result:
    return CliRunner().invoke(
        app, ["--var", str(var), "--forms", "*:2011", *words], env={"COLUMNS": "160"}
    )


def remove_entry(var: Path, number: int) -> None:
    path = var / "broker-11" / "logs" / f"{PAGE_VIEW}-0" / f"{0:020d}.kafka"
    entries = entries_of(path.read_bytes())
    path.write_bytes(b"".join(entries[:number] + entries[number + 1 :]))


def test_a_balanced_deployment_exits_0(var: Path) -> None:
    result = audit(var)
    assert result.exit_code == 0, result.output
    assert "The audit balances: 20 messages in every tier" in result.output


def test_a_missing_message_is_shown_with_its_window_and_exits_1(var: Path) -> None:
    remove_entry(var, 7)
    result = audit(var)
    assert result.exit_code == 1
    assert "missing 1" in result.output
    assert "Windows of 2011-03-13 (UTC), server frontend-1" in result.output
    assert "07:06:40" in result.output
    assert "offline: missing 1" in result.output
    assert "The audit does not balance. missing: 1 in offline" in result.output


def test_json_is_the_whole_report(var: Path) -> None:
    remove_entry(var, 7)
    result = audit(var, "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == told["exit_status"] == 1
    assert told["source"] == "disk"
    assert told["totals"]["tiers"]["offline"]["missing"] == 1
    assert [cell["tiers"]["offline"]["missing"] for cell in told["cells"]] == [1]


def test_one_topic_alone(var: Path) -> None:
    remove_entry(var, 7)
    assert audit(var, "--topic", "click").exit_code == 0
    assert audit(var, "--topic", PAGE_VIEW).exit_code == 1


def test_restarts_of_the_run_excuse_copies(var: Path) -> None:
    path = var / "broker-11" / "logs" / f"{PAGE_VIEW}-0" / f"{0:020d}.kafka"
    path.write_bytes(path.read_bytes() + entries_of(path.read_bytes())[0])
    assert audit(var).exit_code == 1
    restart = {"name": "mirror-1", "time_ms": T0}
    (var / "run" / "restarts.json").write_text(json.dumps([restart]))
    result = audit(var)
    assert result.exit_code == 0
    assert "redelivered 1" in result.output
    assert "started again during the run: mirror-1" in result.output


def test_directories_can_be_named(var: Path, tmp_path: Path) -> None:
    words = ["--live-dir", str(var / "broker-1"), "--offline-dir", str(var / "broker-11")]
    assert audit(tmp_path / "elsewhere", *words).exit_code == 0
    assert audit(tmp_path / "elsewhere", "--live-dir", str(tmp_path / "none")).exit_code == 2


def test_nothing_to_count_is_status_2_with_one_line(tmp_path: Path) -> None:
    result = audit(tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "no broker logs are below" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_service_that_was_named_and_does_not_answer_is_status_2(var: Path) -> None:
    result = audit(var, "--url", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "no audit service answers at 127.0.0.1:1" in result.stderr


def test_names_from_messages_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[2Jb\n") == "a\\x1b[2Jb\\x0a"


@pytest.mark.parametrize(
    ("start_ms", "text"),
    [
        (1_300_000_000_000, "2011-03-13 07:06:40"),
        (1_300_000_000_250, "2011-03-13 07:06:40.250"),
        (-1, "no header"),
        (2**60, f"{2**60} ms"),
    ],
)
def test_windows_are_shown_in_utc(start_ms: int, text: str) -> None:
    assert window_text(start_ms) == text


def _cell(number: int, verdict: str) -> dict[str, object]:
    return {"number": number, "tiers": {"live": {"verdict": verdict}}}


def test_a_long_list_of_windows_is_cut_to_the_first_that_are_wrong() -> None:
    cells = [_cell(n, "missing 1" if n % 2 else "pending") for n in range(10)]
    assert [cell["number"] for cell in worst_of(cells, 3)] == [1, 3, 5]
    assert [cell["number"] for cell in worst_of(cells, 7)] == [0, 1, 2, 3, 5, 7, 9]
    assert worst_of(cells, 10) == cells
