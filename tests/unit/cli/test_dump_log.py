"""`dump-log`: the forms of what it prints."""

import json
from pathlib import Path

import pytest

from tests.conftest import Run


def test_a_cut_is_a_json_line_where_that_is_asked_for(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged, clean = tmp_path / "0.kafka", tmp_path / "9.kafka"
    for path in (damaged, clean):
        path.touch()
    copies = {damaged: tmp_path / "copy", clean: None}
    monkeypatch.setattr(
        "kafka2011.broker.log.dump.truncate_corrupt", lambda path, _directory: copies[path]
    )
    words = ("dump-log", "--truncate-corrupt", damaged, clean)
    assert run(*words).lines == [
        f"{damaged}: cut, copy in {copies[damaged]}",
        f"{clean}: clean, nothing to cut",
    ]
    done = run(*words, "--json")
    assert (done.status, [json.loads(line) for line in done.lines]) == (
        0,
        [
            {"path": str(damaged), "copy": str(copies[damaged])},
            {"path": str(clean), "copy": None},
        ],
    )
