"""Commits of tables and reports' pictures, read from their files."""

import json
from pathlib import Path

from kafka2011.services.dashboard.sampling.spark_jobs import JobReader


def test_commits_are_read_from_the_tables_log(tmp_path: Path) -> None:
    log = tmp_path / "page_view" / "_delta_log"
    log.mkdir(parents=True)
    found = {"topic": "page-view", "rows": 3, "offsets": {"11-0": [10, 40]}, "quarantined": []}
    info = {"commitInfo": {"timestamp": 5, "kafka2011": json.dumps(found)}}
    add = {"add": {"path": "a", "size": 9}}
    (log / "00000000000000000001.json").write_text(json.dumps(info) + "\n" + json.dumps(add))
    (log / "00000000000000000002.json").write_text("{half")
    rows = JobReader(tmp_path, None).commits()
    assert list(rows) == ["page_view/1"]
    assert rows["page_view/1"]["source_bytes"] == 30
    assert rows["page_view/1"]["bytes"] == 9


def test_pictures_are_only_those_listed(tmp_path: Path) -> None:
    (tmp_path / "secret.svg").write_text("x")
    reader = JobReader(None, tmp_path)
    assert reader.picture("secret") is None
    (tmp_path / "secret.json").write_text('{"totals": {}}')
    assert reader.picture("secret") == b"x"
    assert reader.picture("../secret") is None


def test_reports_tell_of_their_tables_and_rows(tmp_path: Path) -> None:
    traffic = {"table": "page_view", "version": 5, "rows": 7, "totals": {"page_views": 6}}
    activity = {"report": "sessions", "tables": {"login": 3, "click": 4}, "rows": [{}, {}]}
    for name, found in (("page_view", traffic), ("sessions", activity), ("half", None)):
        (tmp_path / f"{name}.svg").write_text("<svg/>")
        (tmp_path / f"{name}.json").write_text(json.dumps(found) if found else "{half")
    rows = JobReader(None, tmp_path).reports()
    assert list(rows) == ["page_view", "sessions"]
    assert rows["page_view"]["tables"] == {"page_view": 5}
    assert (rows["page_view"]["rows"], rows["page_view"]["answers"]) == (7, None)
    assert (rows["sessions"]["rows"], rows["sessions"]["answers"]) == (None, 2)
