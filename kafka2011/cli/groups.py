"""`kafka2011 groups`: the consumer groups, their members, owners, offsets, lag and state.

The state follows the rules of Burrow (`consumer/tools/lag_rules.py`) and comes with its reason. One
sample decides cases that need no history; `--watch SECONDS` samples once a second and also judges
the commits. 0.7's ConsumerOffsetChecker is `groups describe` here.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer

from kafka2011.cli.connections import connected, dialler, require_group
from kafka2011.cli.options import AddressMap, AsJson, ZooKeeper
from kafka2011.cli.output import (
    complain,
    duration,
    fail,
    print_json,
    print_lines,
    print_table,
    utc,
)
from kafka2011.consumer.broker_addresses import BrokerAddresses
from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.counting.validation import Validation
from kafka2011.consumer.counting.verdicts import WORST_FIRST, Validated
from kafka2011.consumer.tools.cluster_state import groups, registered_members
from kafka2011.consumer.tools.group_watch import GroupReport, GroupWatch, PartitionReport
from kafka2011.consumer.tools.lag_rules import OK, WATCH
from kafka2011.consumer.tools.lag_time import LagTime
from kafka2011.events.errors import UnknownSchema
from kafka2011.events.forms import Forms
from kafka2011.events.origin import Origin, origin_of
from kafka2011.events.schemas import schema_text
from kafka2011.events.settings import FormSettings
from kafka2011.events.topics import schema_name
from kafka2011.runtime import logs
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.runtime.safe_text import one_line
from kafka2011.runtime.signals import stop_event

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List and describe consumer groups. For example: "
    "kafka2011 groups describe --zookeeper localhost:2181 online --watch 30",
)

LOOK_S = 1.0
VALIDATE_WAIT_S = 20.0


@app.command("list")
def list_groups(zookeeper: ZooKeeper = "", as_json: AsJson = False) -> None:
    """Print the names of all groups, one a line."""
    logs.configure("groups", level="WARNING")
    with connected(zookeeper) as registry:
        names = groups(registry)
    if as_json:
        print_json(names)
    else:
        print_lines(names)


@app.command()
def describe(
    group: Annotated[str, typer.Argument(help="consumer group")],
    *,
    zookeeper: ZooKeeper = "",
    watch: Annotated[
        float, typer.Option("--watch", min=0, metavar="SECONDS", help="observe for this long first")
    ] = 0,
    check: Annotated[bool, typer.Option("--check", help="status 1 unless the state is OK")] = False,
    event_forms: Annotated[
        str | None,
        typer.Option(
            "--event-forms",
            help="topics whose messages say their time, topic:form,...: their lag in time is that "
            "of the message (as the setting event.forms)",
        ),
    ] = None,
    address_map: AddressMap = "",
    as_json: AsJson = False,
) -> None:
    """Show a group's state and members and, per partition, owner, offset, end, lag and its reason.

    Lag is in bytes, and in time where possible: by the header of the first unread message
    (events), else by when the log was seen to grow (--watch) or its segments were written. STALL
    and WARN need ten commits, so --watch of ten commit intervals; a group that commits less often
    than every 30 s may be shown as STOP between commits unless it is watched. A subscription is in
    0.7's notation: *4*PATTERN is a whitelist of 4 streams, !1!PATTERN a blacklist of 1.
    Status 1 when there is no such group.
    """
    config = load_or_exit(FormSettings, log_level="WARNING", event_forms=event_forms)
    logs.configure("groups", level="WARNING")
    dialled = dialler(address_map)
    stop = stop_event() if watch else threading.Event()
    with connected(zookeeper) as registry:
        require_group(registry, group)
        watching = GroupWatch(registry, group, dialled, origin=_origins(config.forms))
        deadline_s = time.monotonic() + watch
        watching.sample()
        while (left_s := deadline_s - time.monotonic()) > 0 and not stop.is_set():
            stop.wait(min(LOOK_S, left_s))
            watching.sample()
        report = watching.report()
    if as_json:
        print_json(_json(report))
    else:
        _print(report)
        if not watch and any(WATCH in one.verdict.reason for one in report.partitions):
            complain("add --watch 30 to judge it: the group is then observed for 30 s first")
    raise SystemExit(1 if check and report.verdict.state != OK else 0)


@app.command()
def validate(
    group: Annotated[str, typer.Argument(help="consumer group with audit.enable")],
    *,
    zookeeper: ZooKeeper = "",
    final: Annotated[
        bool, typer.Option("--final", help="the producers have stopped: judge open windows as well")
    ] = False,
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait",
            min=0,
            help="longest wait for a group that runs to read what was there when the command "
            "began, seconds",
        ),
    ] = VALIDATE_WAIT_S,
    address_map: AddressMap = "",
    as_json: AsJson = False,
) -> None:
    """Compare what a group has counted of its topics with what the producers reported.

    Status 1: messages are missing or extra, it is unknown, or there is no such group; 2: the group
    counts nothing.
    """
    logs.configure("groups", level="WARNING")
    config = load_or_exit(
        ConsumerConfig, log_level="WARNING", groupid=group, address_map=address_map
    )
    with connected(zookeeper) as registry:
        require_group(registry, group)
        validation = Validation(registry, group, BrokerAddresses(registry, config))
        deadline_s, stop = time.monotonic() + wait_s, stop_event()
        found = validation.settled(
            lambda: (
                time.monotonic() < deadline_s
                and bool(registered_members(registry, group))
                and not stop.wait(LOOK_S)
            ),
            is_final=final,
        )
    if not found.topics:
        fail(f"group {group!r} counts nothing: audit.enable=true makes its members count", 2)
    if as_json:
        print_json(_validated_json(found))
    else:
        _print_validated(found)
    raise SystemExit(1 if {"missing", "unknown", "extra"} & {found.state} else 0)


def _print_validated(found: Validated) -> None:
    rows = []
    for topic, each in found.topics.items():
        words = [f"{name} {number:,}" for name, number in each.numbers.items()]
        if each.state not in each.numbers:  # or how many is unknown
            words.insert(0, each.state)
        complete = "" if each.complete_to_ms is None else utc(each.complete_to_ms)
        since = utc(each.counted_from_ms) if each.counted_from_ms else "the beginning"
        rows.append((topic, each.expected, each.counted, ", ".join(words), complete, since))
    print_table(
        ("topic", "produced", "counted", "verdict", "complete up to", "counted from"),
        rows,
        numbers=("produced", "counted"),
    )
    for topic, each in found.topics.items():
        wrong = [window for window in each.open_windows if window.reason]
        if wrong:
            first = min(wrong, key=lambda window: WORST_FIRST.index(window.state))
            since = utc(first.start_ms) if first.start_ms >= 0 else "without a header"
            number = f" {first.number:,}" if first.number else ""
            others = len(each.open_windows) - 1
            more = f"; other windows that are not complete: {others:,} (--json)" if others else ""
            print(one_line(f"{topic}, window {since}: {first.state}{number}, {first.reason}{more}"))
    if found.unread:
        print(one_line(unread_text(found)))


def unread_text(found: Validated) -> str:
    """Which reports are not read and why, and what the table lacks for it."""
    since = f"windows that end after {utc(found.read_to_ms)} are" if found.read_to_ms else "all is"
    return (
        f"not all reports of the producers are read: {found.unread}; until they are, *produced* "
        f"lacks what they counted, and {since} pending"
    )


def _validated_json(found: Validated) -> dict[str, object]:
    return {
        "state": found.state,
        "complete_to_ms": found.complete_to_ms,
        "read_to_ms": found.read_to_ms,
        "unread": found.unread,
        "topics": {topic: asdict(each) for topic, each in found.topics.items()},
    }


def _origins(forms: Forms) -> Callable[[str], Origin | None]:
    """A function from a topic to what reads the time of its events; None unless the topic is named
    in the forms or has a schema in this package, since it may not carry events."""

    def origin(topic: str) -> Origin | None:
        if topic not in forms.by_topic:
            try:
                schema_text(schema_name(topic))
            except UnknownSchema:
                return None
        return origin_of(forms, topic)

    return origin


def _print(report: GroupReport) -> None:
    state = report.state
    verdict = report.verdict
    print(one_line(f"{state.group}: {verdict.state} ({verdict.reason})"))
    print_table(("member", "subscription"), state.members.items())
    print_table(
        (
            "topic",
            "partition",
            "owner",
            "offset",
            "end",
            "lag",
            "lag time",
            "committed",
            "state",
            "because",
        ),
        (
            (
                one.partition.name.topic,
                f"{one.partition.name.broker_id}-{one.partition.name.partition}",
                one.partition.owner or "none",
                one.partition.offset,
                one.partition.end,
                one.partition.lag_bytes,
                lag_text(one.lag_time),
                None if one.committed_ms is None else utc(one.committed_ms),
                one.verdict.state,
                one.verdict.reason,
            )
            for one in report.partitions
        ),
        numbers=("offset", "end", "lag"),
    )


def lag_text(found: LagTime) -> str:
    """An age in words, or its bounds."""
    least, most = found.at_least_ms, found.at_most_ms
    if least is None and most is None:
        return "?"
    if least is None:
        return f"up to {duration(most or 0)}"
    if most is None:
        return f"{duration(least)} or more"
    if duration(least) == duration(most):
        return duration(least)
    return f"{duration(least)} to {duration(most)}"


def _json(report: GroupReport) -> dict[str, object]:
    return {
        "group": report.state.group,
        "state": report.verdict.state,
        "reason": report.verdict.reason,
        "members": report.state.members,
        "partitions": [_partition_json(one) for one in report.partitions],
    }


def _partition_json(one: PartitionReport) -> dict[str, object]:
    found, age = one.partition, one.lag_time
    return {
        "topic": found.name.topic,
        "broker": found.name.broker_id,
        "partition": found.name.partition,
        "owner": found.owner or None,
        "offset": found.offset,
        "end": found.end,
        "lag": found.lag_bytes,
        "lag_seconds": None if age.at_least_ms is None else age.at_least_ms / 1000,
        "lag_seconds_max": None if age.at_most_ms is None else age.at_most_ms / 1000,
        "lag_seconds_by": age.source or None,
        "lag_seconds_reason": age.reason or None,
        "committed": None if one.committed_ms is None else utc(one.committed_ms),
        "state": one.verdict.state,
        "reason": one.verdict.reason,
        "window": one.verdict.complete,
    }
