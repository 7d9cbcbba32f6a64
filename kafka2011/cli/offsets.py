"""`kafka2011 offsets`: the stored offsets of consumer groups: get, export, import, reset.

The tools of 0.7 that this replaces: ExportZkOffsets, ImportZkOffsets (their file form is kept) and
UpdateOffsetsInZK. `Unlike 0.7:` a group with live members is refused, since a member's next commit
would undo the change; a change is shown before it is made; and an offset that no message begins at
is not stored.

    kafka2011 offsets reset --zookeeper localhost:2181 --group g --topic clicks --to earliest
"""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from kafka2011.cli.connections import connected, dialler, require_group
from kafka2011.cli.options import AddressMap, AsJson, ZooKeeper, broker_partition
from kafka2011.cli.output import complain, fail, parse_time, print_json, print_table
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.tools import group_offsets
from kafka2011.consumer.tools.cluster_state import (
    QUERY_TIMEOUT_MS,
    Dialled,
    PartitionEnds,
    groups,
    partition_ends,
)
from kafka2011.consumer.tools.group_offsets import (
    BadExport,
    Change,
    GroupOffset,
    StoppedHalfWay,
    Target,
)
from kafka2011.coordination import cluster, paths
from kafka2011.coordination.registry import Registry
from kafka2011.protocol import message_set
from kafka2011.protocol.errors import IllegalGroupName, KafkaError
from kafka2011.protocol.names import check_group
from kafka2011.runtime import logs
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.safe_text import one_line
from kafka2011.runtime.storage_paths import write_whole

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Get, export, import and reset the stored offsets of consumer groups. For example: "
    "kafka2011 offsets reset --zookeeper localhost:2181 --group g --topic clicks --to earliest",
)

ENTRY_BYTES_MAX = 1 << 24  # the largest message that is recognised at an offset

DryRun = Annotated[bool, typer.Option("--dry-run", help="show the changes without making them")]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="also while the group has members, whose next commits may undo it"
    ),
]


@app.command()
def get(
    *,
    zookeeper: ZooKeeper = "",
    group: Annotated[str, typer.Option("--group", help="consumer group")],
    topic: Annotated[list[str] | None, typer.Option("--topic", help="only this topic")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is stored for a group. Status 1 when there is no such group, or nothing of it in a
    topic that was named."""
    logs.configure("offsets", level="WARNING")
    with connected(zookeeper) as registry:
        require_group(registry, group)
        found = group_offsets.stored_offsets(registry, group)
    having = {one.name.topic for one in found}
    found = [one for one in found if topic is None or one.name.topic in topic]
    if as_json:
        print_json([_json(one) for one in found])
    else:
        print_table(
            ("topic", "partition", "offset"),
            ((one.name.topic, _place(one.name), one.offset) for one in found),
            numbers=("offset",),
        )
    absent = [name for name in dict.fromkeys(topic or ()) if name not in having]
    for name in absent:
        complain(f"group {group!r} has no offsets in topic {name!r}{suggestion(name, having)}")
    if absent:
        raise SystemExit(1)


@app.command("export")
def export_offsets(
    zookeeper: ZooKeeper = "",
    group: Annotated[
        list[str] | None, typer.Option("--group", help="only this group (default: all); repeatable")
    ] = None,
    output_file: Annotated[
        str, typer.Option("--output-file", help="file to write; - is standard output")
    ] = "-",
) -> None:
    """Write the offsets in the file form of 0.7, one line a partition.

    For example: kafka2011 offsets export --zookeeper localhost:2181 --output-file offsets.txt
    """
    logs.configure("offsets", level="WARNING")
    with connected(zookeeper) as registry:
        for name in group or ():
            require_group(registry, name)
        found = [
            one
            for name in (group or groups(registry))
            for one in group_offsets.stored_offsets(registry, name)
        ]
    for one in found:
        if one.offset is None:
            complain(f"{one.path} holds no offset: left out")
        elif one.path != one_line(one.path):
            complain(f"{one_line(one.path)} is not one line of text: left out")
    found = [one for one in found if one.path == one_line(one.path)]
    text = "".join(f"{line}\n" for line in group_offsets.export_lines(found))
    if output_file == "-":
        sys.stdout.write(text)
        return
    try:
        _write(Path(output_file).resolve(), text.encode())
    except OSError as error:
        fail(f"{output_file}: {error.strerror}")


def _write(path: Path, content: bytes) -> None:
    """Replace the file as a whole: on a full disk an earlier export stays. Raises OSError."""
    if path.is_file() or (not path.exists() and path.parent.is_dir()):
        write_whole(path, lambda file: file.write(content))
    else:  # a pipe, say
        path.write_bytes(content)


@app.command("import")
def import_offsets(
    *,
    zookeeper: ZooKeeper = "",
    input_file: Annotated[
        str, typer.Option("--input-file", help="file of `export`; - is standard input")
    ],
    group: Annotated[
        list[str] | None,
        typer.Option("--group", help="only this group (default: all in the file); repeatable"),
    ] = None,
    dry_run: DryRun = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Store the offsets of an export file, of 0.7 or this command, up to its first empty line.

    Whether they fit the brokers' logs is not looked at: a consumer moves one that does not by its
    autooffset.reset.
    """
    logs.configure("offsets", level="WARNING")
    source = "standard input" if input_file == "-" else input_file
    try:
        if input_file == "-":
            lines = sys.stdin.read().split("\n")
        else:
            lines = Path(input_file).read_text(encoding="utf-8").split("\n")
        wanted = group_offsets.parse_export(lines)
    except OSError as error:
        fail(f"{source}: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{source}: not text")
    except BadExport as error:
        fail(f"{source}: {error}")
    if not wanted:
        fail(f"{source}: no offsets in it")
    absent = set(group or ()).difference(one.group for one in wanted)
    if absent:
        fail(f"{source}: no offsets of group {min(absent)!r} in it")
    if group:
        wanted = [one for one in wanted if one.group in group]
    with connected(zookeeper) as registry:
        changes = group_offsets.plan_import(registry, wanted)
        _carry_out(registry, changes, dry_run=dry_run, force=force, as_json=as_json)


@app.command()
def reset(
    *,
    zookeeper: ZooKeeper = "",
    group: Annotated[str, typer.Option("--group", help="consumer group")],
    topic: Annotated[list[str], typer.Option("--topic", help="topic; repeatable")],
    to: Annotated[
        str,
        typer.Option(
            "--to", help="earliest, latest, a time (2011-06-12T09:30:00Z, or ms:MS), or an offset"
        ),
    ],
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="BROKER-PARTITION", help="only this partition"),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="also for a group that does not exist yet")
    ] = False,
    address_map: AddressMap = "",
    dry_run: DryRun = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Move a group's offsets and show them before and after.

    A time is as exact as the brokers' segments: reading begins at the newest segment that was last
    written before it, so that nothing newer is missed. Refuses while the group has members.
    Status 1 when something could not be moved; nothing is when a topic or partition that was named
    is nowhere.
    """
    logs.configure("offsets", level="WARNING")
    target = parse_target(to)
    only = {broker_partition(text) for text in partition or ()}
    dialled = dialler(address_map)
    try:
        check_group(group)
    except IllegalGroupName as error:
        fail(str(error), 2)
    with connected(zookeeper) as registry:
        if not create:
            require_group(registry, group, "; --create makes it")
        known = cluster.topics(registry)
        unknown = [name for name in topic if name not in known]
        if unknown:
            fail(f"no topic {unknown[0]!r}{suggestion(unknown[0], known)}")
        stored = group_offsets.stored_offsets(registry, group, topic)
        ends = partition_ends(registry, topic, dialled)
        names = {one.name for one in stored} | {one.name for one in ends}
        names = {name for name in names if not only or name[1:] in only}
        _refuse_absent(topic, only, names)
        if target.offset is not None and len(names) > 1:
            fail("an offset is one partition's: name it with --partition BROKER-PARTITION", 2)
        with _Asking(dialled) as asking:
            changes = group_offsets.plan_reset(
                {name: group_offsets.read_offset(registry, group, name) for name in names},
                [one for one in ends if one.name in names],
                target,
                offset_of_time=asking.offset_of_time,
                is_entry=asking.is_entry,
            )
        changes = group_offsets.noted(registry, changes)
        _carry_out(registry, changes, dry_run=dry_run, force=force, as_json=as_json)


def _refuse_absent(
    topics: Sequence[str], only: Collection[tuple[int, int]], names: Collection[TopicPartition]
) -> None:
    """Exits with status 1 if a topic or partition is not among `names`, with a line for each."""
    absent = [
        f"partition {broker_id}-{number}"
        for broker_id, number in sorted(only)
        if all(name[1:] != (broker_id, number) for name in names)
    ]
    if names or not only:
        having = {name.topic for name in names}
        absent += [f"topic {name!r}" for name in dict.fromkeys(topics) if name not in having]
    for what in absent:
        complain(f"{what}: no live broker has such a partition, and no offset is stored")
    if absent:
        raise SystemExit(1)


def parse_target(text: str) -> Target:
    """The target in --to. Exits with status 2 for an invalid one."""
    if text in (group_offsets.EARLIEST, group_offsets.LATEST):
        return Target(end=text)
    if re.fullmatch(r"[0-9]{1,19}", text) and int(text) <= paths.OFFSET_MAX:
        return Target(offset=int(text))
    if re.fullmatch(r"ms:[0-9]{1,15}", text):
        return Target(time_ms=int(text[3:]))
    try:
        time_ms = parse_time(text)
    except ValueError:
        fail(
            f"--to {text!r}: earliest, latest, an offset, ms:MILLISECONDS, or a time such as "
            "2011-06-12T09:30:00Z",
            2,
        )
    if time_ms < 0:  # in a request it would mean latest or earliest
        fail(f"--to {text!r}: before 1970", 2)
    return Target(time_ms=time_ms)


class _Asking:
    """Queries brokers about single partitions, over one connection to each."""

    def __init__(self, dialled: Dialled) -> None:
        self._dialled = dialled
        self._clients: dict[tuple[str, int], SimpleConsumer] = {}

    def __enter__(self) -> "_Asking":
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, found: PartitionEnds) -> SimpleConsumer:
        assert found.address is not None
        address = self._dialled(found.address)
        if address not in self._clients:
            self._clients[address] = SimpleConsumer(*address, QUERY_TIMEOUT_MS)
        return self._clients[address]

    def offset_of_time(self, found: PartitionEnds, time_ms: int) -> int:
        name = found.name
        try:
            offsets = self._client(found).get_offsets_before(name.topic, name.partition, time_ms)
        except KafkaError as error:
            fail(f"{name}: {error}")
        assert found.start is not None
        return offsets[0] if offsets else found.start

    def is_entry(self, found: PartitionEnds, offset: int) -> bool:
        """Whether a whole message begins at `offset`, by its CRC."""
        name = found.name
        try:
            data = self._client(found).fetch(name.topic, name.partition, offset, ENTRY_BYTES_MAX)
            first = next(message_set.entries(data.data), None)
        except BrokerUnavailable as error:
            fail(f"{name}: {error}")
        except KafkaError:
            return False
        return first is not None and first.is_valid


def _carry_out(
    registry: Registry, changes: Sequence[Change], *, dry_run: bool, force: bool, as_json: bool
) -> None:
    """Show the changes, and make them unless `--dry-run`."""
    names = sorted({change.before.group for change in changes})
    members = {name: group_offsets.live_members(registry, name) for name in names}
    busy = [name for name in names if members[name]]
    notes: dict[Change, str] = {}
    refused: Sequence[Change] = ()
    stopped: StoppedHalfWay | None = None
    makes = not dry_run and (force or not busy)
    if makes:
        try:
            refused = group_offsets.apply(registry, changes)
        except StoppedHalfWay as error:
            stopped, refused = error, error.refused
            notes |= dict.fromkeys(error.left, "not changed")
            notes[error.left[0]] = "not known whether it was changed"
        notes |= dict.fromkeys(refused, "not changed: the node was written meanwhile")
    _show(changes, notes, as_json=as_json)
    if stopped is not None:
        fail(str(stopped))
    for name in busy:
        count = len(members[name])
        remedy = "its next commit may undo this" if force else "stop them first, or --force"
        if not makes and not dry_run:
            remedy = f"nothing was changed: {remedy}"
        complain(f"group {name!r} has {count} live member{'s' * (count > 1)}: {remedy}")
    if busy and not force and not dry_run:
        raise SystemExit(1)
    if notes or any(change.after is None for change in changes):
        raise SystemExit(1)
    if makes:
        joined = [
            name
            for name in names
            if name not in busy and group_offsets.live_members(registry, name)
        ]
        if joined:
            fail(f"a member of group {joined[0]!r} joined meanwhile: look at the offsets again")
    elif not as_json and dry_run:
        complain("nothing was changed: --dry-run")


def _show(changes: Sequence[Change], notes: Mapping[Change, str], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    **_json(change.before),
                    "after": change.after,
                    "note": notes.get(change, change.note) or None,
                }
                for change in changes
            ]
        )
        return
    print_table(
        ("group", "topic", "partition", "before", "after", "change", "note"),
        (
            (
                change.before.group,
                change.before.name.topic,
                _place(change.before.name),
                "none" if change.before.offset is None else change.before.offset,
                change.after,
                _difference(change),
                notes.get(change, change.note),
            )
            for change in changes
        ),
        numbers=("before", "after", "change"),
    )


def _difference(change: Change) -> str:
    if change.after is None or change.before.offset is None:
        return ""
    return f"{change.after - change.before.offset:+,}"


def _place(name: TopicPartition) -> str:
    return f"{name.broker_id}-{name.partition}"


def _json(one: GroupOffset) -> dict[str, object]:
    return {
        "group": one.group,
        "topic": one.name.topic,
        "broker": one.name.broker_id,
        "partition": one.name.partition,
        "offset": one.offset,
    }
