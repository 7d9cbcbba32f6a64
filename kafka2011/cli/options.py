"""Options that several commands have: the same flag, form and help for the same thing."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kafka2011.cli.output import fail
from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode
from kafka2011.runtime.storage_paths import StoragePath, storage_path

PropertiesFile = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="properties file with settings")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="a setting (kafka2011 settings lists them); repeatable"
    ),
]
AddressMap = Annotated[
    str,
    typer.Option(
        "--address-map", help="published=dial,...: connect to `dial` instead of a published address"
    ),
]
ZOOKEEPER_HELP = (
    "ZooKeeper, host:port,host:port/chroot; or the word live or offline: that of the deployment "
    "that runs in this directory"
)
ZooKeeper = Annotated[
    str, typer.Option("--zookeeper", "-z", help=f"{ZOOKEEPER_HELP} (default: live)")
]
OfflineZooKeeper = Annotated[
    str, typer.Option("--zookeeper", "-z", help=f"{ZOOKEEPER_HELP} (default: offline)")
]
OldZooKeeper = Annotated[str, typer.Option("--zk", hidden=True)]  # before it was --zookeeper
Server = Annotated[str, typer.Option("--server", help="the broker, kafka://host:port")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]
Input = Annotated[
    str,
    typer.Option(
        "--input", help="access log to send, plain or packed (gzip, bzip2, xz, zstd); -: from stdin"
    ),
]
InputFormat = Annotated[
    str,
    typer.Option(
        "--format",
        help="its format in the server's own notation, Apache's or nginx's "
        "(default: common, combined or JSON lines)",
    ),
]


def warehouse_place(text: object) -> StoragePath:
    """The value of `--warehouse`. Exits with status 2 for anything but a path or an s3:// URL."""
    try:
        return storage_path(str(text))
    except ValueError as error:
        fail(f"--warehouse {error}", 2)


def warehouse_option(*names: str, about: str) -> Any:
    """An option for a warehouse, whose value is a `StoragePath`."""
    return typer.Option(
        *names, parser=warehouse_place, metavar="PATH", help=f"{about}, or s3://bucket/prefix"
    )


Warehouse = Annotated[
    StoragePath | None, warehouse_option("--warehouse", about="directory of the warehouse")
]


def broker_partition(text: str) -> paths.BrokerPartition:
    """The value of `--partition BROKER-PARTITION`. Exits with status 2 for anything else."""
    try:
        return paths.decode_broker_partition(text)
    except BadZnode:
        fail(f"--partition {text!r} must be BROKER-PARTITION, such as 0-3", 2)
