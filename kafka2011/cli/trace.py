"""`kafka2011 trace GUID`: where is my message? Its way through all tiers, or its last place.

kafka2011 trace 6f1d0c...                                        by guid, 32 hexadecimal digits
kafka2011 trace --topic page-view --partition 1-0 --offset 7340  by its place in the live logs
kafka2011 trace --topic page-view --text /in/ada                 the first that holds a text
"""

import contextlib
import importlib
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kafka2011.cli.connections import (
    connected,
    dialler,
    fail_without_one,
    found_directory,
    found_zookeeper,
    tables_of,
    zookeeper_address,
)
from kafka2011.cli.options import (
    ZOOKEEPER_HELP,
    AddressMap,
    AsJson,
    broker_partition,
    warehouse_option,
)
from kafka2011.cli.output import fail, print_json, print_table, utc
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.safe_text import one_line
from kafka2011.runtime.storage_paths import StoragePath

if TYPE_CHECKING:
    from kafka2011.services.trace.steps import Step, Trace
    from kafka2011.services.trace.tracing import Question

app = typer.Typer(add_completion=False)

_GUID = re.compile(r"[0-9a-f]{32}")
NOT_FOUND = 3


@app.command()
def trace(
    guid: Annotated[
        str, typer.Argument(metavar="[GUID]", help="header.guid, 32 hexadecimal digits")
    ] = "",
    *,
    topic: Annotated[str, typer.Option("--topic", help="topic (default: all but audit)")] = "",
    partition: Annotated[
        str,
        typer.Option("--partition", metavar="BROKER-PARTITION", help="partition, such as 1-0"),
    ] = "",
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="offset in that partition")
    ] = None,
    text: Annotated[str, typer.Option("--text", help="text in the message")] = "",
    at: Annotated[
        Literal["live", "offline"],
        typer.Option("--at", help="datacenter that --partition and --offset are of"),
    ] = "live",
    live_zookeeper: Annotated[
        str, typer.Option("--live-zookeeper", help=f"{ZOOKEEPER_HELP} (default: live)")
    ] = "",
    offline_zookeeper: Annotated[
        str, typer.Option("--offline-zookeeper", help=f"{ZOOKEEPER_HELP} (default: offline)")
    ] = "",
    warehouse: Annotated[
        StoragePath | None,
        warehouse_option(
            "--warehouse", about="directory of the warehouse (default: that of the deployment here)"
        ),
    ] = None,
    mirror_group: Annotated[
        str, typer.Option("--mirror-group", help="group of the mirror")
    ] = "mirror",
    forms: Annotated[
        str | None,
        typer.Option(
            "--event-forms",
            help="event.forms of the topics (default: of the deployment that runs here, or *:id)",
        ),
    ] = None,
    address_map: AddressMap = "",
    limit_s: Annotated[
        float, typer.Option("--wait", "--seconds", min=0.1, help="longest search, seconds")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Show one message's way: frontend, live log, mirror, offline log, and row of the warehouse.

    Or the last place where it was seen, and what is between there and the next tier.

    Exit status 0 when it is a row of the warehouse; 1 when it is not, or a datacenter does not
    answer; 2 when the command is wrong; 3 when no such message is found. For example:
    kafka2011 trace --topic page-view --partition 1-0 --offset 0
    """
    from kafka2011.cli.audit_recount import given_forms
    from kafka2011.runtime import logs

    logs.configure("trace", level="ERROR")
    question = _question(guid, topic, partition, offset, text=text, at=at)
    directory = found_directory()
    try:
        topic_forms = given_forms(forms, directory)
    except ValueError as error:
        fail(f"--event-forms: {error}", 2)
    if warehouse is None and directory is not None:
        warehouse = tables_of(directory)
    from kafka2011.coordination.errors import CoordinationError
    from kafka2011.services.trace.search import Logs
    from kafka2011.services.trace.tracing import NotFound, Tracer

    zookeepers = {
        name: zookeeper_address(given, name, f"--{name}-zookeeper")
        if given
        else found_zookeeper(name)
        for name, given in (("live", live_zookeeper), ("offline", offline_zookeeper))
    }
    given = [(name, zookeeper) for name, zookeeper in zookeepers.items() if zookeeper]
    if not given:
        fail_without_one("--live-zookeeper", lambda one: one.zookeeper["live"])
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        if warehouse is not None:
            pool.submit(_load_tables)  # while others answer
        entered = [pool.submit(stack.enter_context, connected(at, name)) for name, at in given]
        logs_of: dict[str, Logs | None] = dict.fromkeys(zookeepers)
        for (name, _), registry in zip(given, entered, strict=True):
            found_logs = Logs(name, registry.result(), dialler(address_map))
            logs_of[name] = stack.enter_context(contextlib.closing(found_logs))
        tracer = Tracer(
            logs_of["live"],
            logs_of["offline"],
            warehouse,
            topic_forms,
            mirror_group=mirror_group,
            time_limit_s=limit_s,
        )
        try:
            found = tracer.trace(question)
        except NotFound as error:
            fail(str(error), NOT_FOUND)
        except (KafkaError, CoordinationError) as error:
            fail(str(error) or type(error).__name__)
        if as_json:
            print_json(found.as_json())
        else:
            _print(found)
    raise SystemExit(0 if found.has_arrived else 1)


def _load_tables() -> None:
    with contextlib.suppress(ImportError):  # the trace says so
        importlib.import_module("kafka2011.services.trace.table_rows")


def _question(
    guid: str, topic: str, partition: str, offset: int | None, *, text: str, at: str
) -> "Question":
    """What the words ask for. Exits with status 2 when that is nothing, or two things."""
    from kafka2011.services.trace.tracing import Question

    is_place = bool(partition) or offset is not None
    if sum((bool(guid), is_place, bool(text))) != 1:
        fail("give one of: a GUID, --partition with --offset, --text", 2)
    if is_place:
        if not topic or not partition or offset is None:
            fail("a place is --topic, --partition and --offset", 2)
        return Question(topic, source=broker_partition(partition), offset=offset, tier=at)
    if text:
        return Question(topic, text=text)
    digits = guid.replace("-", "").lower()
    if not _GUID.fullmatch(digits):
        fail(f"{guid!r} is no guid: 32 hexadecimal digits", 2)
    return Question(topic, guid=bytes.fromhex(digits))


def _print(found: "Trace") -> None:
    print_table(
        ("tier", "state", "where", ""), [row for step in found.steps for row in _rows(step)]
    )
    print()
    size = f", {found.bytes:,} bytes" if found.bytes is not None else ""
    print(one_line(f"{found.topic} {found.guid or 'without a guid'}{size}: {found.verdict}"))
    for other in found.others:
        where = f"{other['partition']} at {other['offset']}"
        print(one_line(f"fits too: {other['tier']} {other['topic']} {where}"))


def _rows(step: "Step") -> list[tuple[str, str, str, str]]:
    """A row for each place at a tier; a single one if there is no place."""
    if not step.places:
        return [(step.tier, step.state, "", step.text)]
    rows = []
    for number, place in enumerate(step.places):
        tier, state, text = (step.tier, step.state, step.text) if number == 0 else ("", "", "")
        rows.append((tier, state, _where(place), text))
    return rows


def _where(place: dict[str, object]) -> str:
    if "server" in place:
        by = [str(place[name]) for name in ("server", "service") if place[name]]  # JSON: no service
        return ", ".join([*by, utc(int(str(place["time_ms"])))])
    if "file" in place:
        version = place["version"]
        written = f", written by version {version}" if version is not None else ""
        return f"{place['table']}{written}: {place['file']} row {place['row']}"
    copied = f", copy of {place['copied_from']}" if "copied_from" in place else ""
    return f"{place['partition']} at {place['offset']}{copied}"
