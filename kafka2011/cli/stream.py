"""`kafka2011 stream NAME`: run a stream job; also what `spark-submit spark-jobs/stream.py` runs."""

from pathlib import Path
from typing import Annotated

import typer

from kafka2011.cli import spark_environment
from kafka2011.cli.settings import load_or_exit
from kafka2011.services.warehouse.streams.config import StreamConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="the job; `list` names them")],
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="take what is there now, and end")] = False,
) -> None:
    """Run one stream job until SIGTERM, or once over what is there.

    Results go to Parquet files in stream.dir, those of top-items to a topic. Started again, a job
    goes on behind what it has done."""
    from kafka2011.services.warehouse.streams.jobs import BY_NAME, JOBS

    if name == "list":
        width = max(map(len, BY_NAME)) + 2
        for job in JOBS:
            print(f"{job.name:<{width}}{', '.join(job.topics)}: {job.about}")
        return
    if name not in BY_NAME:
        typer.echo(f"kafka2011 stream: no job {name!r} (there are: {', '.join(BY_NAME)})", err=True)
        raise SystemExit(2)
    config = load_or_exit(StreamConfig, file, set_ or [])
    spark_environment.prepare()
    from kafka2011.services.warehouse.streams import runner as stream_run

    raise SystemExit(stream_run.main(config, BY_NAME[name], once=once))
