"""The class archive of Spark's JVM is made whole or not at all (that it is used:
`tests/integration/test_spark_source.py`)."""

from pathlib import Path
from typing import Never

import pytest

from kafka2011.services.warehouse import class_archive
from kafka2011.services.warehouse.session import SparkNotStarted


@pytest.mark.parametrize("error", [SparkNotStarted("no Java"), OSError("no Java")])
def test_where_none_can_be_made_the_old_one_stays_and_one_line_says_why(
    error: Exception,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object, **__: object) -> Never:
        raise error

    archive = tmp_path / "share" / "classes.jsa"
    archive.parent.mkdir()
    archive.write_text("old")
    monkeypatch.setattr(class_archive, "CLASS_ARCHIVE", archive)
    monkeypatch.setattr(class_archive, "start_quietly", fails)
    assert class_archive.main() == 1
    said = capsys.readouterr().err
    assert said == "kafka2011: no class archive, so Spark starts slowly: no Java\n"
    assert [path.read_text() for path in archive.parent.iterdir()] == ["old"]
