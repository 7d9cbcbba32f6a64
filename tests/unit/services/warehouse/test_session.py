"""A session for a person at a terminal: what the JVM says is shown only when it does not start."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Never

import pytest

from kafka2011.services.warehouse import session
from kafka2011.services.warehouse.session import (
    CONF_DIR,
    SparkNotStarted,
    start_quietly,
    start_session,
)
from tests import ROOT


class Builder:
    """Of a session; makes its configuration alone."""

    def config(self, conf: Any) -> "Builder":
        self.conf = conf
        return self

    def getOrCreate(self) -> Any:
        return self.conf


def say(text: str) -> None:
    subprocess.run(["sh", "-c", f"echo '{text}' >&2"], check=True)


def test_lines_of_the_jvm_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "start_session", lambda *_: say("WARNING: incubator modules"))
    start_quietly("test", "local")
    say("after")
    assert capfd.readouterr().err == "after\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("[JAVA_GATEWAY_EXITED]"),
            "needs Java 17 or newer and 1 GB of memory: JAVA_HOME is not set",
        ),
        (ModuleNotFoundError(name="pyspark"), "not installed: pip install 'kafka2011[spark]'"),
    ],
)
def test_a_start_that_fails_is_one_line(
    error: Exception,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fails(*_: object) -> Never:
        say("JAVA_HOME is not set\n")
        raise error

    monkeypatch.setattr(session, "start_session", fails)
    with pytest.raises(SparkNotStarted) as raised:
        start_quietly("test", "local")
    assert str(raised.value).endswith(said)
    assert capfd.readouterr().err == ""


def test_a_session_makes_no_directory_where_it_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "builder", Builder())
    conf = start_session("test", "local")
    kept = Path(conf.get("spark.sql.warehouse.dir").removeprefix("file://"))
    assert kept.parent == Path(tempfile.gettempdir()).resolve()


def test_the_jvm_gets_its_own_settings_and_the_class_archive_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No directory with files may be in the class path of a JVM that is to use an archive."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    archive = tmp_path / "mit äöü" / "classes.jsa"
    monkeypatch.setattr(session, "CLASS_ARCHIVE", archive)
    temporary = tmp_path / "with a space"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    conf = start_session("test", "local")
    assert "SPARK_CONF_DIR" not in os.environ
    assert conf.get("spark.driver.memory") == "768m"
    options = shlex.split(conf.get("spark.driver.extraJavaOptions"))
    assert "-XX:+UseSerialGC" in options
    log_form = f"-Dlog4j2.configurationFile={(CONF_DIR / 'log4j2.properties').as_uri()}"
    assert log_form in options
    assert f"-Djava.io.tmpdir={temporary}" in options
    assert "jsa" not in str(options)
    archive.parent.mkdir()
    archive.touch()
    conf = start_session("test", "local")
    with_archive = shlex.split(conf.get("spark.driver.extraJavaOptions"))
    assert with_archive == [*options, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]
    # A JVM that spark-submit started has its settings.
    monkeypatch.setenv(session.UNDER_SPARK_SUBMIT, "1")
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda: None)
    assert not start_session("test", "local").contains("spark.driver.extraJavaOptions")


def test_what_the_configuration_directory_sets_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In every form that Java takes; a comment sets nothing."""
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    named = ("spark.sql.shuffle.partitions", "spark.ui.enabled", "spark.python.worker.reuse")
    assert all(start_session("test", "local").contains(name) for name in named)
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.sql.session.timeZone Asia/Tokyo\n\n"
        "  spark.sql.shuffle.partitions   7\nspark.ui.enabled=true\n"
        "spark.python.worker.reuse: false"
    )
    conf = start_session("test", "local")
    assert not any(conf.contains(name) for name in named)
    assert conf.get("spark.sql.session.timeZone") == "UTC"


PATH_OF_WORKER = "import os; print(os.environ.get('PYTHONPATH'))"


@pytest.mark.parametrize(("is_package", "kept"), [(True, ["one", "two"]), (False, None)])
def test_a_worker_leaves_out_the_zip_of_the_pyspark_that_is_installed(
    is_package: bool, kept: list[str] | None, tmp_path: Path
) -> None:
    """A distribution of Spark has no other PySpark than its zip."""
    home = tmp_path / "with a space *"
    paths = [
        str(home / "python/lib/pyspark.zip"),
        "one",
        str(home / "python/lib/pyspark.zip"),
        "two",
    ]
    home.mkdir()
    if is_package:
        (home / "__init__.py").touch()
    bin_dir = tmp_path / "mit äöü"
    bin_dir.mkdir()
    script = bin_dir / "kafka2011-spark-python"
    script.symlink_to(ROOT / "spark-jobs" / "kafka2011-spark-python")
    (bin_dir / "python3").symlink_to(sys.executable)
    done = subprocess.run(
        [script, "-c", PATH_OF_WORKER],
        env={"SPARK_HOME": str(home), "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().split(os.pathsep) == (kept or paths)


def test_a_worker_that_is_started_without_spark_has_the_path_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    script = tmp_path / "script"
    script.symlink_to(ROOT / "spark-jobs" / "kafka2011-spark-python")
    done = subprocess.run(
        [script, "-c", PATH_OF_WORKER], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"


@pytest.mark.parametrize(
    ("mode", "beside", "used"),
    [
        (None, "python", False),
        (0o644, "python", False),
        (0o755, "python", True),
        (0o755, "python3.99", False),  # `python3` is another version than the one that runs
    ],
)
def test_workers_run_the_script_where_it_is_installed(
    mode: int | None, beside: str, used: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "kafka2011-spark-python"
    if mode is not None:
        script.touch(mode)
    (tmp_path / "python3").symlink_to(beside)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PYSPARK_PYTHON", "of the user")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")  # is taken back when the test ends
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    session.prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == "of the user"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == (str(script) if used else sys.executable)
