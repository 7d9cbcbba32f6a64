"""The warehouse's commands that answer without Spark: lists, checks, and what is wrong."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka2011.services.warehouse.config import WarehouseConfig
from tests.conftest import Done, Run


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (["stream", "weather"], 2, "no job 'weather'"),
        (["schedule", "/nowhere"], 2, "kafka2011 schedule: /nowhere: No such file or directory"),
        (["load", "--reset", "page-view"], 2, "TOPIC/BROKER-PARTITION"),
        (["load", "--set", "warehouse.retention.hours=1000001"], 2, "must be at most 1000000"),
        (["load", "--set", "warehouse.vacuum.hours=1000001"], 2, "must be at most 1000000"),
        (["history", "--dir", "/nowhere"], 1, "spark.event.log.dir"),
    ],
)
def test_what_cannot_be_done_has_a_reason(
    words: list[str], status: int, reason: str, run: Run
) -> None:
    ran = run(*words)
    assert ran.status == status
    assert reason in ran.err


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], None),
        (["--json"], "-"),
        (["--json", "job.properties"], "-"),
        (["--json", "-"], "-"),  # as before it was a flag
        (["--json", "report.json"], "report.json"),
    ],
)
def test_where_the_reports_json_goes(
    words: list[str],
    place: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Run,
) -> None:
    from kafka2011.services.warehouse.reports import traffic_job

    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.properties").touch()
    places: list[str | None] = []
    monkeypatch.setattr(traffic_job, "run_report", lambda _config, place: places.append(place))
    assert (run("report", *words).status, places) == (0, [place])


@pytest.mark.parametrize(
    ("command", "job"),
    [("report", "traffic_job.run_report"), ("reports", "activity_job.run_reports")],
)
def test_reports_take_the_warehouse_as_sql_does(
    command: str, job: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[str] = []

    def made(config: WarehouseConfig, _: object) -> int:
        places.append(str(config.warehouse_dir))
        return 0

    monkeypatch.setattr(f"kafka2011.services.warehouse.reports.{job}", made)
    assert (run(command, "--warehouse", "elsewhere/warehouse").status, places) == (
        0,
        ["elsewhere/warehouse"],
    )


def test_a_table_that_cannot_be_opened_is_named(tmp_path: Path, run: Run) -> None:
    write_deltalake(tmp_path / "clicks", pa.table({"n": [1]}))
    next(tmp_path.glob("clicks/_delta_log/*.json")).write_bytes(bytes(100))
    ran = run("sql", "select n from clicks", "--warehouse", str(tmp_path))
    assert ran.status == 1
    assert ran.err.startswith("kafka2011: table clicks cannot be opened: ")


def test_stream_jobs_are_listed(run: Run) -> None:
    status, out, _ = run("stream", "list")
    assert status == 0
    assert "search-to-click" in out


def test_a_schedule_is_checked(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "schedule"
    file.write_text("every 10m load\ndaily 02:30 report\n")
    assert run("schedule", file, "--dry-run") == Done(0, "2 jobs\n", "")
    file.write_text("every day broker\n")
    status, _, err = run("schedule", file)
    assert status == 2
    assert "line 1: 'day' must be a duration" in err
