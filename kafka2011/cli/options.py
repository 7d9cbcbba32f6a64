"""Options that several commands have: the same flag, form and help for the same thing."""

from pathlib import Path
from typing import Annotated

import typer

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
ZOOKEEPER_HELP = "ZooKeeper, host:port,host:port/chroot"
ZooKeeper = Annotated[str, typer.Option("--zookeeper", "-z", help=ZOOKEEPER_HELP)]
OldZooKeeper = Annotated[str, typer.Option("--zk", hidden=True)]  # before it was --zookeeper
Server = Annotated[str, typer.Option("--server", help="the broker, kafka://host:port")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON instead of text")]
