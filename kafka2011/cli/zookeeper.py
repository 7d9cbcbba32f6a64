"""`kafka2011 zookeeper`: run a ZooKeeper server from PySpark's jars; read any ZooKeeper.

    kafka2011 zookeeper zookeeper.properties                        a server until SIGTERM
    kafka2011 zookeeper ls -z localhost:2181 /brokers --recursive   names below a node
    kafka2011 zookeeper get -z localhost:2181 /brokers/ids/0        a node's value

`ls` and `get` only read.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kafka2011.cli.commands import ZOOKEEPER
from kafka2011.cli.connections import connected
from kafka2011.cli.launcher import launch
from kafka2011.cli.options import AsJson, PropertiesFile, Settings, ZooKeeper
from kafka2011.cli.output import fail, payload_bytes, print_json, print_lines, utc
from kafka2011.coordination.registry import Registry
from kafka2011.runtime import logs

SERVE = "serve"


class _ServesByDefault(TyperGroup):
    """`kafka2011 zookeeper [FILE] [--set ...]` runs a server."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = [SERVE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    add_completion=False,
    cls=_ServesByDefault,
    help="Run a ZooKeeper server (serve, the default), or read one (ls, get). "
    "For example: kafka2011 zookeeper ls --zookeeper localhost:2181 /brokers",
)

NodePath = Annotated[str, typer.Argument(help="the node, under the chroot")]


@app.command(SERVE, help=ZOOKEEPER.help)
def run(file: PropertiesFile = None, set_: Settings = None) -> None:
    launch(ZOOKEEPER, file, set_)


@app.command("ls")
def list_children(
    path: NodePath = "/",
    *,
    zookeeper: ZooKeeper = "",
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="all nodes below, as whole paths")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the names of a node's children, one a line. Status 1 when there is no such node."""
    logs.configure("zookeeper", level="WARNING")
    path = _checked(path)
    with connected(zookeeper) as registry:
        if not registry.exists(path):
            fail(f"no node {path!r}")
        found = _below(registry, path) if recursive else registry.children(path)
    if as_json:
        print_json(found)
    else:
        print_lines(found)


@app.command("get")
def get_value(path: NodePath, *, zookeeper: ZooKeeper = "", as_json: AsJson = False) -> None:
    """Print a node's value and a new line; --json adds the node's metadata.

    Status 1 when there is no such node. A node without data prints an empty line.
    """
    logs.configure("zookeeper", level="WARNING")
    path = _checked(path)
    with connected(zookeeper) as registry:
        stored, stat = registry.get(path), registry.stat(path)
    if stored is None or stat is None:
        fail(f"no node {path!r}")
    if as_json:
        value = stored.value
        print_json(
            {
                "path": path,
                "value": None if value is None else value.decode("utf-8", "backslashreplace"),
                "version": stat.version,
                "created": utc(stat.created_ms),
                "modified": utc(stat.modified_ms),
                "ephemeral": stat.is_ephemeral,
                "children": stat.child_count,
            }
        )
        return
    out = sys.stdout.buffer
    out.write(payload_bytes(stored.value or b"", out) + b"\n")


def _checked(path: str) -> str:
    """The path without empty parts. Exits with status 2 for an invalid one."""
    words = path.split("/")
    if not path.startswith("/") or any(word in (".", "..") for word in words) or "\0" in path:
        fail(f"{path!r} is not a path: /brokers/ids, for example", 2)
    return "/" + "/".join(word for word in words if word)


def _below(registry: Registry, path: str) -> list[str]:
    """All paths under `path`, a node before its children."""
    found = []
    for name in registry.children(path):
        child = f"{path.rstrip('/')}/{name}"
        found += [child, *_below(registry, child)]
    return found
