from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.reports.activity import BY_NAME, REPORTS
from kafka2011.services.warehouse.reports.activity_job import missing_input, run_reports


def test_each_report_has_a_name_of_its_own_and_a_picture_of_its_columns() -> None:
    assert len(BY_NAME) == len(REPORTS)
    for report in REPORTS:
        for column in (*report.picture.label, report.picture.value):
            assert column in report.sql, report.name


def test_an_empty_warehouse_gives_a_hint_what_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = WarehouseConfig(warehouse_dir=tmp_path)
    assert run_reports(config) == 1
    message = capsys.readouterr().err
    assert "there is no table page_view" in message
    assert "make demo" in message
    elsewhere = WarehouseConfig(warehouse_dir=tmp_path / "mistyped")
    assert run_reports(elsewhere) == 1
    assert f"there is no warehouse at {tmp_path / 'mistyped'}; " in capsys.readouterr().err
    assert run_reports(config, ["weather"]) == 2
    assert "no report 'weather'" in capsys.readouterr().err


def test_a_table_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "search", pa.table({"guid": [b"1"], "query": ["x"]}))
    reason = missing_input(BY_NAME["top-searches"], tmp_path)
    assert reason == "table search has no column elapsed_ms, member_id, result_count"


def test_a_table_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "search", pa.table({"guid": [b"1"]}))
    next(tmp_path.glob("search/_delta_log/*.json")).write_bytes(bytes(100))
    reason = missing_input(BY_NAME["top-searches"], tmp_path)
    assert reason.startswith("table search cannot be opened: ")
