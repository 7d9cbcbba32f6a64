"""Commits of tables and reports' pictures, read from their files."""

import json
from pathlib import Path

import pytest

from kafka2011.services.dashboard.sampling.spark_jobs import JobReader


def test_commits_are_read_from_the_tables_log(tmp_path: Path) -> None:
    log = tmp_path / "page_view" / "_delta_log"
    log.mkdir(parents=True)
    found = {"topic": "page-view", "rows": 3, "offsets": {"11-0": [10, 40]}, "quarantined": []}
    info = {"commitInfo": {"timestamp": 5, "kafka2011": json.dumps(found)}}
    add = {"add": {"path": "a", "size": 9, "stats": "a text's \u2028 is no end of a line"}}
    lines = (json.dumps(info), json.dumps(add, ensure_ascii=False))
    (log / "00000000000000000001.json").write_text("\n".join(lines))
    (log / "00000000000000000002.json").write_text("{half")
    rows = JobReader(tmp_path, None).commits()
    assert list(rows) == ["page_view/1"]
    assert rows["page_view/1"]["source_bytes"] == 30
    assert rows["page_view/1"]["bytes"] == 9


def committed(topic: str) -> str:
    """The text of a commit of the loads."""
    found = {"topic": topic, "rows": 3, "offsets": {}}
    return json.dumps({"commitInfo": {"timestamp": 5, "kafka2011": json.dumps(found)}})


@pytest.mark.parametrize(
    "name",
    [
        f"{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        f"{0:020d}.{5:020d}.compacted.json",
        f"{1:020d}.crc.json",
        "1.json",
        "9" * 200 + ".json",
    ],
)
def test_other_files_of_a_tables_log_are_no_commits(tmp_path: Path, name: str) -> None:
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text(committed("t"))
    (log / name).write_text(committed("t"))
    assert list(JobReader(tmp_path, None).commits()) == ["t/0"]


def test_a_commit_that_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    """It was half written."""
    log = tmp_path / "t" / "_delta_log"
    log.mkdir(parents=True)
    reader = JobReader(tmp_path, None)
    file = log / f"{7:020d}.json"
    for text in (committed("t")[:20], "[" * 100_000, '{"commitInfo": {"timestamp": 1e999}}'):
        file.write_text(text)
        assert reader.commits() == {}
    file.write_text(committed("t"))
    assert list(reader.commits()) == ["t/7"]


def test_a_report_of_any_text_hides_no_other(tmp_path: Path) -> None:
    for name, text in (("deep", "[" * 100_000), ("good", "{}")):
        (tmp_path / f"{name}.svg").write_text("<svg/>")
        (tmp_path / f"{name}.json").write_text(text)
    assert list(JobReader(None, tmp_path).reports()) == ["good"]


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
