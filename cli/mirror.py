"""`kafka2011 mirror`: copy topics from one cluster to another until SIGTERM."""

from pathlib import Path
from typing import Annotated

import typer

from cli.settings import load_or_exit
from runtime.signals import stop_event
from services.mirror_maker.config import MirrorConfig

app = typer.Typer(add_completion=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="properties file")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="one setting")
    ] = None,
    whitelist: Annotated[
        str | None, typer.Option("--whitelist", help="copy only topics that match")
    ] = None,
    blacklist: Annotated[
        str | None, typer.Option("--blacklist", help="copy no topics that match")
    ] = None,
) -> None:
    """Run one member of a mirror: source.zk.connect, target.zk.connect, groupid, ..."""
    config = load_or_exit(
        MirrorConfig,
        file,
        set_ or [],
        topics_whitelist=whitelist,
        topics_blacklist=blacklist,
    )
    stop = stop_event()
    from services.mirror_maker.app import run as mirror

    raise SystemExit(mirror(config, stop))
