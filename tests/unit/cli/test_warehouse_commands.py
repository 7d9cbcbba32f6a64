"""The warehouse's commands that answer without Spark: lists, checks, and what is wrong."""

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka2011.runtime.storage_paths import StoragePath
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


@pytest.fixture
def deployment_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of a deployment that runs in the current directory."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "demo" / "run"
    run.mkdir(parents=True)
    zookeeper = {"live": "h:1", "offline": "h:2"}
    document = {"pid": os.getpid(), "socket": "s", "zookeeper": zookeeper, "registry": "http://h:3"}
    (run / "supervisor.json").write_text(json.dumps(document))
    environment = {
        "KAFKA2011_SCHEMA_REGISTRY_URL": "http://h:3",
        "KAFKA2011_EVENT_FORMS": "*:id",
        "KAFKA2011_AUDIT_WINDOW_MS": "10000",
        "KAFKA2011_WAREHOUSE_DIR": "/elsewhere/warehouse",
        "KAFKA2011_ZK_CONNECT": "h:2",
    }
    (run / "loader.json").write_text(json.dumps({"environment": environment}))
    return tmp_path


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[StoragePath]:
    """The warehouses on which reports were made, and at which prompts were opened."""
    from kafka2011.services.warehouse import session
    from kafka2011.services.warehouse.reports import activity_job, traffic_job
    from kafka2011.services.warehouse.shell import prompt

    places: list[StoragePath] = []
    for module, entry in ((traffic_job, "run_report"), (activity_job, "run_reports")):
        monkeypatch.setattr(module, entry, lambda config, _: places.append(config.warehouse_dir))
    monkeypatch.setattr(session, "start_session", Mock())
    monkeypatch.setattr(prompt, "run_shell", lambda _session, place, _: places.append(place))
    return places


@pytest.mark.parametrize("command", ["report", "reports", "pyspark"])
def test_tables_are_those_of_the_deployment_here_unless_given(
    command: str, run: Run, deployment_here: Path, reported: list[StoragePath]
) -> None:
    assert run(command).status == 0
    assert run(command, "--set", "warehouse.dir=given").status == 0
    loader = deployment_here / "demo" / "run" / "loader.json"
    store = {"KAFKA2011_WAREHOUSE_DIR": "s3://bucket/tables"}
    loader.write_text(json.dumps({"environment": store}))
    assert run(command).status == 0
    (deployment_here / "demo").rename(deployment_here / "var")
    (deployment_here / "var" / "run" / "supervisor.json").unlink()
    assert run(command).status == 0  # what var holds, stopped
    assert list(map(str, reported)) == [
        "demo/warehouse", "given", "s3://bucket/tables", "s3://bucket/tables",
    ]  # fmt: skip


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[WarehouseConfig]:
    """The settings with which `load` has reset, replayed and loaded."""
    from kafka2011.services.warehouse.load import app, replay, reset

    configs: list[WarehouseConfig] = []
    for module, entry in ((reset, "run_reset"), (replay, "run_replay"), (app, "run_loads")):
        monkeypatch.setattr(module, entry, lambda config, *_: configs.append(config))
    return configs


ONCE = [["--reset", "page-view/11-0"], ["--replay-quarantine", "page-view"]]


@pytest.mark.parametrize("words", ONCE, ids=["reset", "replay"])
def test_what_load_does_once_it_does_to_the_deployment_here(
    run: Run, deployment_here: Path, ran: list[WarehouseConfig], words: list[str]
) -> None:
    assert run("load", *words).status == 0
    [config] = ran
    assert config.zk_connect == "h:2"
    assert config.warehouse_dir.resolve() == deployment_here / "demo" / "warehouse"
    assert (config.schema_registry_url, config.window_ms) == ("http://h:3", 10_000)
    assert config.forms.settings()["event.forms"] == "*:id"


def test_what_load_is_told_is_not_taken_from_the_deployment_here(
    run: Run, deployment_here: Path, ran: list[WarehouseConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA2011_AUDIT_WINDOW_MS", "5000")
    (deployment_here / "its.properties").write_text("schema.registry.url=http://f:1\n")
    assert run("load", *ONCE[0], "its.properties").status == 0
    [config] = ran
    assert config.zk_connect == "h:2"
    assert (config.schema_registry_url, config.window_ms) == ("http://f:1", 5_000)
    assert config.forms.settings()["event.forms"] == "*:id"


@pytest.mark.parametrize("place", ["zk.connect=s:1", "warehouse.dir=other"])
@pytest.mark.parametrize("is_in_file", [True, False])
def test_nothing_is_taken_from_the_deployment_here_for_another_one(
    run: Run, deployment_here: Path, ran: list[WarehouseConfig], place: str, is_in_file: bool
) -> None:
    """Ids of schemas are those of one registry: with that of another, rows would be wrong."""
    (deployment_here / "its.properties").write_text(f"{place}\n")
    run("load", *ONCE[1], *(["its.properties"] if is_in_file else ["--set", place]))
    [config] = ran
    assert (config.schema_registry_url, config.window_ms) == ("", WarehouseConfig().window_ms)
    assert "h:2" not in config.zk_connect


def test_a_load_process_has_its_own_settings(
    run: Run, deployment_here: Path, ran: list[WarehouseConfig]
) -> None:
    assert run("load").status == 0
    assert ran == [WarehouseConfig()]


def test_a_stream_job_reads_the_live_brokers_of_the_deployment_here(
    run: Run, deployment_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka2011.services.warehouse.streams import app

    configs: list[Any] = []
    monkeypatch.setattr(app, "run_job", lambda config, _job, **_: configs.append(config))
    run("stream", "views-tumbling", "--once")
    run("stream", "views-tumbling", "--set", "zk.connect=s:1")
    assert [config.zk_connect for config in configs] == ["h:1", "s:1"]
    assert [config.schema_registry_url for config in configs] == ["http://h:3", ""]
