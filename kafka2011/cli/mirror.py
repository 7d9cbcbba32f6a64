"""`kafka2011 mirror`: copy topics from one cluster to another until SIGTERM.

`kafka2011 mirror offsets` prints where a consumer of the source continues at the target,
`kafka2011 mirror refused` the entries that were left out because the target refuses them.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kafka2011.cli.options import (
    AsJson,
    OfflineZooKeeper,
    PropertiesFile,
    Settings,
    ZooKeeper,
    broker_partition,
)
from kafka2011.runtime.config import ConfigError, read_properties
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.signals import stop_event
from kafka2011.services.mirror_maker.config import MirrorConfig


class _RunByDefault(TyperGroup):
    """`kafka2011 mirror [OPTIONS]` is `kafka2011 mirror run [OPTIONS]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else ["run", *args])


app = typer.Typer(add_completion=False, cls=_RunByDefault)


@app.command()
def run(  # noqa: PLR0917 (the original's options)
    file: PropertiesFile = None,
    consumer_config: Annotated[
        list[Path] | None,
        typer.Option(
            "--consumer.config", help="consumer properties of 0.7, for a source; repeatable"
        ),
    ] = None,
    producer_config: Annotated[
        Path | None,
        typer.Option("--producer.config", help="producer properties of 0.7, for the target"),
    ] = None,
    num_streams: Annotated[
        int | None,
        typer.Option("--num.streams", help="no effect: there is a thread for each source broker"),
    ] = None,
    num_producers: Annotated[
        int | None,
        typer.Option("--num.producers", help="no effect: there is a thread for each target broker"),
    ] = None,
    whitelist: Annotated[
        str | None,
        typer.Option("--whitelist", help="regular expression: copy only topics that match"),
    ] = None,
    blacklist: Annotated[
        str | None,
        typer.Option(
            "--blacklist", help="regular expression: copy all topics but those that match"
        ),
    ] = None,
    scatter: Annotated[
        bool,
        typer.Option("--scatter", help="write to any partition, as the original; keeps no order"),
    ] = False,
    set_: Settings = None,
) -> None:
    """Run one member of a mirror: source.zk.connect, target.zk.connect, groupid, ...

    Or with the original's files: --consumer.config, --producer.config. See also: kafka2011 mirror
    offsets --help, kafka2011 mirror refused --help.
    """
    if bool(consumer_config) != (producer_config is not None):
        raise ConfigError("--consumer.config and --producer.config go together")
    if file is not None and consumer_config:
        raise ConfigError("give one properties file, or --consumer.config with --producer.config")
    forced: dict[str, Any] = {"topics_whitelist": whitelist, "topics_blacklist": blacklist}
    words = [*(set_ or []), *(["mirror.scatter=true"] if scatter else [])]
    configs = []
    without_effect: list[str] = []
    sources: list[Path | None] = [*consumer_config] if consumer_config else [None]
    for source in sources:
        translated_words = []
        if source is not None and producer_config is not None:
            from kafka2011.services.mirror_maker.original_options import translated

            found, unused = translated(read_properties(source), read_properties(producer_config))
            translated_words = [f"{name}={text}" for name, text in found.items()]
            without_effect += [name for name in unused if name not in without_effect]
        configs.append(load_or_exit(MirrorConfig, file, [*translated_words, *words], **forced))
    without_effect += ["num.streams"] * (num_streams is not None)
    without_effect += ["num.producers"] * (num_producers is not None)
    if without_effect:
        from kafka2011.runtime.logs import get_logger

        get_logger(__name__).warning("settings_without_effect", names=",".join(without_effect))
    stop = stop_event()
    from kafka2011.services.mirror_maker.app import run as mirror

    raise SystemExit(mirror(configs, stop))


@app.command()
def offsets(
    *,
    zookeeper: OfflineZooKeeper = "",
    topic: Annotated[str, typer.Option("--topic", help="topic")],
    group: Annotated[str, typer.Option("--group", help="group of the mirror")] = "mirror",
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition",
            metavar="BROKER-PARTITION",
            help="source partition, such as 1-0 (default: all)",
        ),
    ] = None,
    source_offset: Annotated[
        int | None,
        typer.Option("--source-offset", min=0, help="print the target offset of this one"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the target offset of a source offset, or how far the map reaches; from the target's
    ZooKeeper.

    Exit status 1 when the map has no entry for it.
    """
    if source_offset is not None and partition is None:
        raise ConfigError("--source-offset needs --partition: offsets are a partition's own")
    from kafka2011.cli.connections import connected
    from kafka2011.cli.output import fail, print_json, print_table
    from kafka2011.services.mirror_maker.mirror_registry import read_maps

    if partition is not None:
        partition = "{}-{}".format(*broker_partition(partition))  # of 01-0, too

    with connected(zookeeper, "offline") as registry:
        rows = read_maps(registry, group, topic, partition, source_offset)
    if as_json:
        print_json([row._asdict() for row in rows])
    else:
        print_table(
            ("cluster", "source", "source offset", "target", "target offset", ""),
            [
                (
                    row.cluster,
                    row.source,
                    row.source_offset,
                    row.target,
                    row.target_offset,
                    "" if row.is_exact else "some are repeated",
                )
                for row in rows
            ],
            numbers=("source offset", "target offset"),
        )
    if not rows:
        where = f"{topic} {partition or ''}".strip()
        at = f" at {source_offset}" if source_offset is not None else ""
        fail(f"the map of group {group} has no entry for {where}{at}")


@app.command()
def refused(
    zookeeper: ZooKeeper = "",
    topic: Annotated[str, typer.Option("--topic", help="topic (default: all)")] = "",
    group: Annotated[str, typer.Option("--group", help="group of the mirror")] = "mirror",
    as_json: AsJson = False,
) -> None:
    """Print the entries that were left out because the target refuses them; from the source's
    ZooKeeper.

    With mirror.refused.entry=skip; the newest 100 of each partition. They stand in the source's log
    until retention deletes them.
    """
    from kafka2011.cli.connections import connected
    from kafka2011.cli.output import print_json, print_table, utc
    from kafka2011.services.mirror_maker.mirror_registry import read_left_out

    with connected(zookeeper) as registry:
        rows = read_left_out(registry, group, topic)
    if as_json:
        print_json([row._asdict() for row in rows])
    else:
        print_table(
            ("topic", "source", "offset", "bytes", "left out", "reason"),
            [
                (row.topic, row.source, row.offset, row.bytes, utc(row.at_ms), row.reason)
                for row in rows
            ],
            numbers=("offset", "bytes"),
        )
