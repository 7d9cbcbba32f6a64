"""`kafka2011 history`: Spark's history server on the event logs of jobs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from kafka2011.services.warehouse.session import CONF_DIR, prepare_environment

app = typer.Typer(add_completion=False)


@app.command()
def run(
    directory: Annotated[
        Path, typer.Option("--event-logs", "--dir", help="directory of the event logs")
    ] = Path("var/spark-events"),
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="port to listen on")
    ] = 18080,
    bind: Annotated[str, typer.Option("--bind", help="address to listen on")] = "127.0.0.1",
) -> None:
    """Serve Spark's pages of jobs that have ended, at http://127.0.0.1:18080, until Ctrl-C.

    Jobs write event logs with --set spark.event.log.dir=var/spark-events."""
    if not directory.is_dir():
        typer.echo(
            f"kafka2011 history: there is no {directory}; run a job with "
            f"--set spark.event.log.dir={directory} first",
            err=True,
        )
        raise SystemExit(1)
    prepare_environment()
    os.environ.setdefault("SPARK_CONF_DIR", str(CONF_DIR))
    from importlib.util import find_spec

    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ModuleNotFoundError(name="pyspark")
    home = Path(found.origin).parent
    options = {
        "spark.history.fs.logDirectory": directory.resolve().as_uri(),
        "spark.history.ui.port": str(port),
        "spark.history.fs.update.interval": "2s",
        "spark.history.fs.cleaner.enabled": "true",  # after 7 days, Spark's default
    }
    os.environ["SPARK_HOME"] = str(home)
    os.environ["SPARK_LOCAL_IP"] = bind
    os.environ["SPARK_DAEMON_MEMORY"] = os.environ.get("SPARK_DAEMON_MEMORY", "512m")
    os.environ["SPARK_HISTORY_OPTS"] = " ".join(f"-D{name}={v}" for name, v in options.items())
    print(f"http://{bind}:{port} (Ctrl-C ends it)", flush=True)
    command = str(home / "bin" / "spark-class")
    os.execv(command, [command, "org.apache.spark.deploy.history.HistoryServer"])  # noqa: S606
