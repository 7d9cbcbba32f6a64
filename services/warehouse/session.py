"""The Spark session of the jobs: settings for a small machine that spark-submit may override.

What must be known before the JVM starts (its memory, its options, the form of its log) stands in
the directory CONF_DIR, which `kafka2011 load` and its kin give as SPARK_CONF_DIR.
"""

import logging
import os
from pathlib import Path
from typing import Any

import kafka2011

# Set by spark-submit for the Python that it starts.
UNDER_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"

CONF_DIR = Path(__file__).resolve().parent / "spark_conf"

# Only where spark-submit, or the configuration directory, says nothing.
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # The hours of a path are text; guessing types of `2015-05-17-10` could only go wrong.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # The list of files comes from the table's log; a Spark job to look at them again is a waste.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.cleaner.periodicGC.interval": "10min",
    # A busy machine takes long to start a Python worker; giving up early only starts another.
    "spark.python.authenticate.socketTimeout": "60s",
}
# Nothing outside this machine has business with a driver in local mode.
LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

# py4j tells of each connection that it closes; the other two repeat, with the JVM's whole stack, an
# exception that the caller gets anyway.
_QUIET = {
    "py4j": logging.ERROR,
    "SQLQueryContextLogger": logging.CRITICAL + 1,
    "DataFrameQueryContextLogger": logging.CRITICAL + 1,
}


def start_session(
    app_name: str,
    master: str,
    local_dir: Path | None = None,
    event_log_dir: Path | None = None,
) -> Any:
    """Start Spark, or take the session that spark-submit prepared; a SparkSession.

    `master` counts only when spark-submit names none. `local_dir` takes Spark's scratch files,
    `event_log_dir` what the history server shows.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)
    if UNDER_SPARK_SUBMIT in os.environ:
        # Its options are in its JVM. A SparkConf knows them only once it is connected to that;
        # what is set before wins over them, the master not excepted.
        SparkContext._ensure_initialized()
    conf = SparkConf()
    conf.setIfMissing("spark.master", master)
    conf.setIfMissing("spark.app.name", app_name)
    defaults = dict(DEFAULTS)
    if conf.get("spark.master", "").startswith("local"):
        defaults.update(LOCAL_DEFAULTS)
    if local_dir is not None:
        defaults["spark.local.dir"] = str(local_dir)
    if event_log_dir is not None:
        event_log_dir.mkdir(parents=True, exist_ok=True)
        defaults["spark.eventLog.enabled"] = "true"
        defaults["spark.eventLog.dir"] = event_log_dir.resolve().as_uri()
    # The workers import what the driver imports, installed or not.
    defaults["spark.executorEnv.PYTHONPATH"] = str(Path(kafka2011.__file__).resolve().parents[1])
    for name, value in defaults.items():
        conf.setIfMissing(name, value)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def parallelism(session: Any) -> int:
    """How many tasks run at the same time."""
    return int(session.sparkContext.defaultParallelism)
