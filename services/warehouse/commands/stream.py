"""`kafka2011 stream NAME`: one stream job, also as `spark-submit spark-jobs/stream.py NAME`."""

from typing import Annotated

import typer

from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.services.warehouse.commands import PropertiesFile, Settings, with_settings_here
from kafka2011.services.warehouse.streams.config import StreamConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="the job; `list` prints their names")],
    file: PropertiesFile = None,
    set_: Settings = None,
    once: Annotated[
        bool, typer.Option("--once", help="process what is there now, then exit")
    ] = False,
) -> None:
    """Run one stream job until SIGTERM, or once over what is there.

    Results go to Parquet files in stream.dir, those of top-items to a topic. A job that is started
    again continues after what it has processed.

    It reads the brokers that zk.connect names, and events whose schemas are in schema.registry.url:
    by default the live ones of the deployment that runs in this directory."""
    from kafka2011.services.warehouse.streams.jobs import BY_NAME, JOBS

    if name == "list":
        width = max(map(len, BY_NAME)) + 2
        for job in JOBS:
            typer.echo(f"{job.name:<{width}}{', '.join(job.topics)}: {job.about}")
        return
    if name not in BY_NAME:
        typer.echo(f"kafka2011 stream: no job {name!r} (there are: {', '.join(BY_NAME)})", err=True)
        raise SystemExit(2)
    config = load_or_exit(StreamConfig, file, with_settings_here(context, set_, file))
    from kafka2011.services.warehouse.streams.app import run_job

    raise SystemExit(run_job(config, BY_NAME[name], once=once))


if __name__ == "__main__":  # spark-submit FILE
    app(prog_name="stream.py")
