"""The Spark session of the jobs: settings for a small machine that spark-submit may override.

What the JVM needs at its start (its memory, its options, the form of its log) is in the directory
CONF_DIR, unless the environment's SPARK_CONF_DIR names another one. It is handed over as options of
the session: a directory with files in its class path would keep a JVM from using its class archive.
"""

import contextlib
import logging
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka2011
from kafka2011.runtime.usage import PROC, with_descendants

# Set by spark-submit for the Python that it starts.
UNDER_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"

CONF_DIR = Path(__file__).resolve().parent / "spark_conf"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SPARK_GONE = "Spark's JVM has ended: start this process again"
# The classes that a start loads, as the JVM keeps them in memory: class_archive.py makes it.
CLASS_ARCHIVE = Path(sys.prefix) / "share" / "kafka2011" / "spark-classes.jsa"

# Used only where neither spark-submit nor the configuration directory sets a value.
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # The hours of a path are text; guessing types of `2015-05-17-10` could only go wrong.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # The list of files comes from the table's log; no Spark job needs to list them again.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.cleaner.periodicGC.interval": "10min",
    # A busy machine takes long to start a Python worker; an early timeout only starts another.
    "spark.python.authenticate.socketTimeout": "60s",
}
LOCAL_DEFAULTS = {
    # Nothing outside this machine connects to the driver.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The only executor is in the driver. After two minutes in which the process is stopped or the
    # machine sleeps, its own heartbeat would be missed: Spark would remove it, go on, and end the
    # JVM after 60 heartbeats of the one removed. A year, in ms.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "31536000000",
}

# Java's form of properties: comments, and what is between a name and its value.
_COMMENT = ("", "#", "!")
_NAME_END = re.compile(r"\s*[=:]\s*|\s+")

# py4j logs each connection that it closes; the other two repeat, with the JVM's whole stack, an
# exception that the caller gets anyway.
_QUIET = {
    "py4j": logging.ERROR,
    "SQLQueryContextLogger": logging.CRITICAL + 1,
    "DataFrameQueryContextLogger": logging.CRITICAL + 1,
}


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a record of the root logger is another's: py4j writes Ctrl-C to it, with stacks."""
    return Path(record.pathname).parent.name != "py4j"


def prepare_environment() -> None:
    """Set what Spark starts as a Python worker, where the user has not set it: this interpreter, by
    the script with which it imports PySpark faster. A data source has the driver's Python."""
    python = Path(sys.executable)
    script = python.with_name("kafka2011-spark-python")
    # The script runs the `python3` beside it, which may be of another version outside of a venv.
    is_same = python.with_name("python3").resolve() == python.resolve()
    python = script if is_same and os.access(script, os.X_OK) else python
    os.environ.setdefault("PYSPARK_PYTHON", str(python))
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", str(python))


def spark_tables_dir() -> Path:
    """Where Spark keeps tables that a statement creates, one directory a user. Spark's default,
    `spark-warehouse` in the current directory, is made even when there is no such table."""
    return Path(tempfile.gettempdir()).resolve() / f"kafka2011-spark-tables-{os.getuid()}"


def configured(directory: Path) -> dict[str, str]:
    """What `spark-defaults.conf` of a configuration directory sets; nothing without one."""
    try:
        lines = (directory / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    lines = [line.strip() for line in lines]
    pairs = [_NAME_END.split(line, maxsplit=1) for line in lines if line[:1] not in _COMMENT]
    return {name: "".join(value).strip() for name, *value in pairs}


def _java_options(given: str, archive_option: str) -> str:
    """The options of the JVM: those `given`, the form of Spark's log, the directory for temporary
    files that Python uses (Java does not heed TMPDIR), and one that names a class archive, if there
    is any."""
    log_form = (CONF_DIR / "log4j2.properties").as_uri()
    words = [given, f"-Dlog4j2.configurationFile={log_form}"]
    words.append(f'"-Djava.io.tmpdir={tempfile.gettempdir()}"')
    if archive_option:
        # A JVM that cannot use the archive (another Java, other jars) starts without: no warning.
        words += [f'"{archive_option}"', "-Xlog:disable"]
    return " ".join(words)


def start_session(
    app_name: str,
    master: str,
    event_log_dir: Path | None = None,
    archive_option: str = "",
) -> Any:
    """A new SparkSession, or the one that spark-submit prepared.

    `master` is used only when spark-submit names none. `event_log_dir` takes what the history
    server shows. `archive_option` replaces the JVM's option that names CLASS_ARCHIVE; the JVM gets
    neither where SPARK_CONF_DIR or spark-submit brings its options.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    prepare_environment()
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().addFilter(_is_not_of_py4j)
    if UNDER_SPARK_SUBMIT in os.environ:
        # spark-submit's options are in its JVM. A SparkConf has them only once it is connected to
        # that; what is set earlier overrides them, even the master.
        SparkContext._ensure_initialized()
    conf = SparkConf()
    conf.setIfMissing("spark.master", master)
    conf.setIfMissing("spark.app.name", app_name)
    defaults = {**DEFAULTS, "spark.sql.warehouse.dir": spark_tables_dir().as_uri()}
    if conf.get("spark.master", "").startswith("local"):
        defaults.update(LOCAL_DEFAULTS)
    if event_log_dir is not None:
        event_log_dir.mkdir(parents=True, exist_ok=True)
        defaults["spark.eventLog.enabled"] = "true"
        defaults["spark.eventLog.dir"] = event_log_dir.resolve().as_uri()
    # The workers import the package of the driver, whether it is installed or a clone.
    defaults["spark.executorEnv.PYTHONPATH"] = str(Path(kafka2011.__file__).resolve().parents[1])
    left: dict[str, str] = {}
    if "SPARK_CONF_DIR" in os.environ:
        # Until its JVM runs, a SparkConf lacks what the directory sets, and would override it.
        left = configured(Path(os.environ["SPARK_CONF_DIR"]))
    elif UNDER_SPARK_SUBMIT not in os.environ:
        own = configured(CONF_DIR)
        if not archive_option and CLASS_ARCHIVE.exists():
            archive_option = f"-XX:SharedArchiveFile={CLASS_ARCHIVE}"
        own[JAVA_OPTIONS] = _java_options(own[JAVA_OPTIONS], archive_option)
        defaults |= own
    for name, value in defaults.items():
        if name not in left:
            conf.setIfMissing(name, value)
    with _no_jvm_left():
        return SparkSession.builder.config(conf=conf).getOrCreate()


@contextlib.contextmanager
def _no_jvm_left() -> Iterator[None]:
    """Kill the JVM whose start is interrupted, as by Ctrl-C. PySpark then removes the directory in
    which that would say its port, at which it fails and does not end: it would run for ever."""
    from pyspark import SparkContext

    before = with_descendants(PROC, os.getpid())
    try:
        yield
    except BaseException:
        if SparkContext._gateway is None:  # else it ends with this process, by its standard input
            for pid in set(with_descendants(PROC, os.getpid())) - set(before):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        raise


class SparkNotStarted(Exception):
    """There is no session; the text is one line that says why."""


def start_quietly(
    app_name: str,
    master: str,
    event_log_dir: Path | None = None,
    archive_option: str = "",
) -> Any:
    """A session as `start_session` makes it, for a person at a terminal.

    What the JVM and its workers write to their standard error goes to a file without a name, and
    only a start that fails shows its last line. Raises SparkNotStarted.
    """
    with tempfile.TemporaryFile() as kept:
        ours = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            return start_session(app_name, master, event_log_dir, archive_option)
        except ModuleNotFoundError as error:
            raise SparkNotStarted(
                "Spark is not installed: pip install 'kafka2011[spark]'"
            ) from error
        except Exception as error:
            kept.seek(0)
            said = kept.read().decode("utf-8", "replace").split("\n")
            lines = [line for line in [str(error).partition("\n")[0], *said] if line.strip()]
            raise SparkNotStarted(
                f"Spark did not start, which needs Java 17 or newer and 1 GB of memory: {lines[-1]}"
            ) from error
        finally:
            os.dup2(ours, 2)
            os.close(ours)


def parallelism(session: Any) -> int:
    """The number of tasks that run at the same time."""
    return int(session.sparkContext.defaultParallelism)


def stop_session(session: Any) -> None:
    """Stop Spark; of one whose JVM has ended nothing is left to stop."""
    try:
        session.stop()
    except Exception:
        if is_alive(session):
            raise


def is_alive(session: Any) -> bool:
    """Whether Spark's JVM answers and runs."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False
