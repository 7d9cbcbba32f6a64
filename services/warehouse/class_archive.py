"""Makes the class archive of Spark's JVM, which halves the processor time of its starts.

Without one, each start reads, checks and links some 15,000 classes from 279 jars again. Java's
class data sharing keeps them in a file as the JVM has them in memory. Here a session does its
everyday work once, and its JVM writes the classes that it has loaded as it ends.

    python -m kafka2011.services.warehouse.class_archive

It takes half a minute and 200 MB; `make prepare-test` runs it. The archive is for this
environment's PySpark and the Java that made it: with any other a start is slow, not wrong. Exit
status 1 where none could be made.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kafka2011.services.warehouse.session import CLASS_ARCHIVE, SparkNotStarted, start_quietly

DUMP_TIMEOUT_S = 600.0  # it takes 15 s of a core


class NoArchive(Exception):
    """No archive could be made; the text is one line that says why."""


def make(archive: Path) -> None:
    """Make `archive` anew. An old one stays until the new one is complete, and a JVM that uses it
    is not disturbed. Raises NoArchive."""
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix="making-") as scratch:
            made = Path(scratch, archive.name)
            _record(made, Path(scratch, "table"))
            with made.open("rb") as file:
                os.fsync(file)  # a JVM would not survive one that a power failure cut short
            os.replace(made, archive)
    except (OSError, SparkNotStarted) as error:
        raise NoArchive(str(error)) from error


def _record(archive: Path, table: Path) -> None:
    """Have a JVM do everyday work and write its classes to `archive`."""
    recording = f"-XX:ArchiveClassesAtExit={archive}"
    session = start_quietly("class-archive", "local[2]", archive_option=recording)
    jvm: subprocess.Popen[bytes] = session.sparkContext._gateway.proc
    try:
        _work(session, table)
        session.stop()
        assert jvm.stdin is not None
        jvm.stdin.close()  # PySpark's JVM ends with its input
        if status := jvm.wait(DUMP_TIMEOUT_S):
            raise NoArchive(f"Java ended with status {status} as it wrote the archive")
        if not archive.exists():
            raise NoArchive("Java wrote none: with a SPARK_CONF_DIR of your own it is not asked to")
    except subprocess.TimeoutExpired as error:
        raise NoArchive(f"Java has not written it in {DUMP_TIMEOUT_S:.0f} s") from error
    finally:
        jvm.kill()


def _work(session: Any, table: Path) -> None:
    """Run a load's plain job, write a table, read it by queries and a report, and stream it."""
    session.sparkContext.parallelize(range(4), 2).map(str).collect()
    session.range(1000).selectExpr(
        "id",
        "concat('server-', id % 7) as server",
        "timestamp_millis(id * 1000) as time",
        "named_struct('path', '/' || id, 'status', cast(200 + id % 3 as int)) as request",
    ).write.parquet(str(table))
    rows = session.read.parquet(str(table))
    rows.createOrReplaceTempView("requests")
    session.sql(
        "select server, count(*), count(distinct request.path), max(time), avg(request.status) "
        "from requests where time > '1970-01-01' group by server order by 2 desc, server limit 5"
    ).collect()
    session.sql(
        "select * from (select r.server, row_number() over (partition by s.server order by r.time) "
        "as n from requests r join requests s on r.id = s.id + 1) where n < 3"
    ).collect()
    rows.groupBy("server").count().toPandas()
    rows.mapInArrow(lambda batches: batches, rows.schema).count()
    (
        session.readStream.schema(rows.schema)
        .parquet(str(table))
        .writeStream.foreachBatch(lambda batch, _: batch.count())
        .option("checkpointLocation", str(table.with_name("checkpoint")))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def main() -> int:
    try:
        make(CLASS_ARCHIVE)
    except NoArchive as error:
        sys.stderr.write(f"kafka2011: no class archive, so Spark starts slowly: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
