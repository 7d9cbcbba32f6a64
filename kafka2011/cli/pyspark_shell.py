"""`kafka2011 pyspark`: a Python prompt with a Spark session, the warehouse and the topics in it."""

import os
import time

import typer

from kafka2011.cli.connections import found_zookeeper, tables_here, zookeeper_address
from kafka2011.cli.options import OfflineZooKeeper, OldZooKeeper, Settings, Warehouse
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.services.warehouse.config import WarehouseConfig

DEFAULT_ZOOKEEPER = "127.0.0.1:2181"  # where no deployment runs in this directory

app = typer.Typer(add_completion=False)


@app.command()
def run(
    warehouse: Warehouse = None,
    zookeeper: OfflineZooKeeper = "",
    zk: OldZooKeeper = "",
    set_: Settings = None,
) -> None:
    """Open a Python prompt with `spark`, a view for each table of the warehouse, and
    `topic("page-view", decode="true")` for a topic as a DataFrame: by default those of the
    deployment that runs in this directory."""
    address = zk or (zookeeper_address(zookeeper) if zookeeper else found_zookeeper("offline"))
    words = [*tables_here(set_ or []), *(set_ or [])]
    config = load_or_exit(WarehouseConfig, None, words, log_level="WARNING")
    os.environ["TZ"] = "UTC"  # PySpark hands out timestamps in the machine's own time zone
    time.tzset()
    from kafka2011.services.warehouse.session import start_session, stop_session
    from kafka2011.services.warehouse.shell.prompt import run_shell
    from kafka2011.services.warehouse.shell.spark_engine import source_options

    session = start_session("pyspark", config.spark_master)
    try:
        source = source_options(config, address or DEFAULT_ZOOKEEPER)
        run_shell(session, warehouse or config.warehouse_dir, source)
    finally:
        stop_session(session)
