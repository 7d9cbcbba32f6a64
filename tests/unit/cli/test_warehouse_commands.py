"""The warehouse's commands that answer without Spark: lists, checks, and what is wrong."""

from pathlib import Path

import pytest

from kafka2011.cli.main import run


def status_of(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        run(list(words))
    return ended.value.code


def test_stream_jobs_are_listed_and_an_unknown_one_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert status_of("stream", "list") == 0
    assert "search-to-click" in capsys.readouterr().out
    assert status_of("stream", "weather") == 2
    assert "no job 'weather'" in capsys.readouterr().err


def test_a_schedule_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schedule"
    file.write_text("every 10m load\ndaily 02:30 report\n")
    assert status_of("schedule", str(file), "--check") == 0
    assert capsys.readouterr().out == "2 jobs\n"
    file.write_text("every day broker\n")
    assert status_of("schedule", str(file)) == 2
    assert "line 1: 'day' must be a duration" in capsys.readouterr().err
    assert status_of("schedule", str(tmp_path / "nowhere")) == 2


def test_what_load_resets_must_be_a_partition(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("load", "--reset", "page-view") == 2
    assert "TOPIC/BROKER-PARTITION" in capsys.readouterr().err


def test_history_without_event_logs_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("history", "--dir", str(tmp_path / "nowhere")) == 1
    assert "spark.event.log.dir" in capsys.readouterr().err
