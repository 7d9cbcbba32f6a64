"""`kafka2011 load`: the load job, also as `spark-submit spark-jobs/load.py`."""

import re
from typing import Annotated, Any

import typer

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.services.warehouse.commands import PropertiesFile, Settings, with_settings_here
from kafka2011.services.warehouse.config import WarehouseConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    context: typer.Context,
    file: PropertiesFile = None,
    *,
    set_: Settings = None,
    interval_ms: Annotated[
        int | None, typer.Option("--interval-ms", help="load repeatedly, this many ms apart")
    ] = None,
    reset: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC/BROKER-PARTITION",
            help="load nothing; have the next load read a lost or replaced log from its start",
        ),
    ] = None,
    replay_quarantine: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="load nothing; make rows of the quarantined messages that can be read now",
        ),
    ] = None,
) -> None:
    """Load new messages of the offline brokers' topics into the warehouse.

    With --reset or --replay-quarantine, what no setting says is as in the deployment that runs in
    this directory."""
    forced: dict[str, Any] = {} if interval_ms is None else {"load_interval_ms": interval_ms}
    words = set_ or []
    if reset is not None or replay_quarantine is not None:
        words = with_settings_here(context, words, file)
    config = load_or_exit(WarehouseConfig, file, words, **forced)
    if replay_quarantine is not None:
        from kafka2011.services.warehouse.load.replay import run_replay

        raise SystemExit(run_replay(config, replay_quarantine))
    if reset is not None:
        from kafka2011.services.warehouse.load.reset import run_reset

        raise SystemExit(run_reset(config, *_topic_partition(reset)))
    from kafka2011.services.warehouse.load.app import run_loads

    raise SystemExit(run_loads(config))


def _topic_partition(text: str) -> tuple[str, BrokerPartition]:
    found = re.fullmatch(r"(.+)/(\d+)-(\d+)", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not TOPIC/BROKER-PARTITION, such as page-view/11-0")
    return found[1], BrokerPartition(int(found[2]), int(found[3]))


if __name__ == "__main__":  # spark-submit FILE
    app(prog_name="load.py")
