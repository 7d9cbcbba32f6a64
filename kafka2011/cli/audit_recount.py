"""What `kafka2011 audit` counts itself: through the brokers while they run, else from their files.

`Directories` are the files of a deployment; `recounted` is the report. What cannot be counted ends
the command with status 2 and one line.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kafka2011.cli.output import fail
from kafka2011.runtime.os_errors import first_line, reason_of
from kafka2011.runtime.shared_settings import MIRROR_GROUP
from kafka2011.runtime.storage_paths import StoragePath, storage_path
from kafka2011.services.embedded.config import OFFLINE_BROKER_ID_FIRST

if TYPE_CHECKING:
    from kafka2011.coordination.registry import Registry
    from kafka2011.events.forms import Forms
    from kafka2011.services.audit.recount.counting import RecountPlan
    from kafka2011.services.audit.recount.elections import Loss
    from kafka2011.services.audit.recount.sources import Confirmed, DiskSource, Source
    from kafka2011.services.audit.restarts import Restart

Json = dict[str, Any]


def refuse(text: str) -> NoReturn:
    fail(text, 2, command="audit")


def state_of(path: Path) -> Json:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


class Directories:
    """The directories to recount; those not given are found below `var`."""

    def __init__(
        self,
        *,
        var: Path,
        live: list[Path],
        offline: list[Path],
        warehouse: StoragePath | None,
        live_zookeeper: str | None,
        forms: str | None,
    ) -> None:
        self.var = var
        self._forms = forms
        self._dirs = {"live": live, "offline": offline}
        self.given = bool(live or offline or warehouse)
        self._warehouse = warehouse
        self._live_zookeeper = live_zookeeper

    def sources(self, mirrored: "Confirmed | None" = None) -> "list[Source]":
        """The log directories: those of live brokers with how far they were mirrored, those of
        offline ones with how far they were loaded."""
        return list(self._with_offsets(mirrored))

    def _with_offsets(self, mirrored: "Confirmed | None") -> "list[DiskSource]":
        from dataclasses import replace

        from kafka2011.services.audit.recount.warehouse_rows import loaded_offsets

        warehouse = self.warehouse()
        loaded = loaded_offsets(warehouse) if warehouse is not None else None
        confirmed = {"live": mirrored, "offline": loaded}
        return [replace(one, confirmed=confirmed[one.tier]) for one in self._directories()]

    def mirrored(self, note: Callable[[str], None]) -> "Confirmed | None":
        """How far the mirror had come; None if that is not known.

        Read from --live-zookeeper, else from the data of the stopped ZooKeeper under `var`.
        """
        from kafka2011.services.audit.recount.mirrored_offsets import mirrored_offsets

        try:
            if self._live_zookeeper:
                return mirrored_offsets(self._live_zookeeper, MIRROR_GROUP)
            if not self.given:
                with _stopped_zookeeper(self.var / "zookeeper-live") as zk_connect:
                    return mirrored_offsets(zk_connect, MIRROR_GROUP)
            note("how far the mirror had come is not known: see --live-zookeeper")
        except (RuntimeError, OSError) as error:
            note(f"how far the mirror had come is not known: {reason_of(error)}")
        return None

    def losses(self, note: Callable[[str], None]) -> "list[Loss]":
        """The unclean elections of the replica sets among the directories, read from ZooKeeper as
        in `mirrored`."""
        from kafka2011.services.audit.recount.elections import losses

        found: list[Loss] = []
        for tier in sorted({one.tier for one in self._directories() if one.directory.copies}):
            try:
                if tier == "live" and self._live_zookeeper:
                    with _registry(self._live_zookeeper) as registry:
                        found += losses(registry, tier)
                elif not self.given:
                    with (
                        _stopped_zookeeper(self.var / f"zookeeper-{tier}") as zk_connect,
                        _registry(zk_connect) as registry,
                    ):
                        found += losses(registry, tier)
                else:
                    note(f"whether {tier} had unclean elections is not known: see --live-zookeeper")
            except (RuntimeError, OSError) as error:
                note(f"whether {tier} had unclean elections is not known: {reason_of(error)}")
        return found

    def _directories(self) -> "list[DiskSource]":
        from kafka2011.services.audit.recount.replica_copies import in_sets
        from kafka2011.services.audit.recount.segment_files import LogDirectory, log_roots
        from kafka2011.services.audit.recount.sources import DiskSource

        found: list[LogDirectory] = []
        if self.given:
            for tier, tops in self._dirs.items():
                for top in tops:
                    roots = log_roots(top)
                    if not roots:
                        refuse(f"no <topic>-<partition> directories with segments in {top}")
                    found += [LogDirectory(tier, str(top), root) for root in roots]
        else:
            for top in sorted([*self.var.glob("broker-*"), *self.var.glob("machine-*/broker-*")]):
                for root in log_roots(top):
                    found.append(LogDirectory(self._tier_of(top), top.name, root))
        return [DiskSource(directory, is_given=self.given) for directory in in_sets(found)]

    def unnamed(self, mirrored: "Confirmed | None") -> list[str]:
        """A note for each directory of which it is not known how far the next tier had come, since
        its name does not say which broker's it is."""
        return [
            f"{one.tier} {one.directory.name}: which broker's it is is not known, and so not how "
            f"far {'the mirror' if one.tier == 'live' else 'the loads'} had come: the directory, "
            "or that above it, must be named broker-ID (a symbolic link will do), and an offset of "
            "that broker be known"
            for one in self._with_offsets(mirrored)
            if one.confirmed is not None and one.is_unnamed
        ]

    def forms(self) -> "Forms":
        """Forms of the topics' messages: by --event-forms and the deployment under `var`."""
        try:
            return given_forms(self._forms, None if self.given else self.var)
        except ValueError as error:
            refuse(f"--event-forms: {error}")

    def _tier_of(self, top: Path) -> str:
        datacenter = state_of(self.var / "run" / f"{top.name}.json").get("datacenter")
        if datacenter in ("live", "offline"):
            return str(datacenter)
        number = top.name.rpartition("-")[2]
        is_offline = number.isdecimal() and int(number) >= OFFLINE_BROKER_ID_FIRST
        return "offline" if is_offline else "live"

    def warehouse(self) -> StoragePath | None:
        if self.given:
            if self._warehouse is not None and not self._warehouse.is_dir():
                refuse(f"no directory of a warehouse at {self._warehouse}")
            return self._warehouse
        from kafka2011.services.embedded.running import recorded_tables

        directory = self.var / "warehouse"
        return recorded_tables(self.var) or (directory if directory.is_dir() else None)


def given_forms(text: str | None, deployment: Path | None) -> "Forms":
    """The forms of the topics' messages. `text` is event.forms. Without it, and for the fields of
    time and server, the environment decides, else the settings of the deployment in the directory.

    Raises ValueError.
    """
    from kafka2011.events.forms import FORMS_SETTING, SERVER_SETTING, TIME_SETTING, forms_of
    from kafka2011.runtime.config import environment_name
    from kafka2011.services.embedded.running import recorded_settings

    names = (FORMS_SETTING, TIME_SETTING, SERVER_SETTING)
    recorded = {} if deployment is None else recorded_settings(deployment, "audit", names)
    found = {} if text is None else {FORMS_SETTING: text}
    for name in names:
        found.setdefault(name, os.environ.get(environment_name(name)) or recorded.get(name, ""))
    return forms_of(found)


@contextmanager
def _stopped_zookeeper(data_dir: Path) -> Iterator[str]:
    """`zk.connect` of a ZooKeeper on a copy of the data of one that was stopped.

    Raises RuntimeError or OSError, one line each, without such data or without Java.
    """
    from kafka2011.services.zookeeper.config import ZooKeeperConfig
    from kafka2011.services.zookeeper.server import ZooKeeperServer

    if not (data_dir / "data").is_dir():
        raise RuntimeError(f"{data_dir} is no data directory of a ZooKeeper")
    with tempfile.TemporaryDirectory(prefix="kafka2011-audit-") as copy:
        shutil.copytree(data_dir / "data", Path(copy) / "data")
        config = ZooKeeperConfig(client_port=0, data_dir=Path(copy), log_level="ERROR")
        with ZooKeeperServer(config, purges=False) as server:
            server.start()
            yield f"{server.host}:{server.port}"


@contextmanager
def _registry(zk_connect: str) -> "Iterator[Registry]":
    """A started registry. Raises RuntimeError, one line."""
    from kafka2011.coordination.errors import CoordinationError
    from kafka2011.coordination.zookeeper import ZooKeeperRegistry

    registry = ZooKeeperRegistry(zk_connect)
    try:
        registry.start()
        yield registry
    except CoordinationError as error:
        raise RuntimeError(f"ZooKeeper at {zk_connect}: {error}") from error
    finally:
        registry.close()


def recounted(
    dirs: Directories,
    summary: Json | None,
    topics: Sequence[str],
    is_final: bool,
    *,
    show_progress: bool,
) -> Json:
    """Count everything again: through the brokers while they run, else from their files."""
    from dataclasses import replace

    from kafka2011.services.audit.recount.counting import recount
    from kafka2011.services.audit.recount.warehouse_rows import UNREADABLE

    now_ms = time.time_ns() // 1_000_000
    restarts = _known_restarts(dirs, summary)
    notes: list[str] = []
    close: list[Callable[[], None]] = []
    try:
        if summary is None:
            plan = _disk_plan(dirs, topics, restarts)
        else:
            plan = _brokers_plan(
                summary,
                topics,
                restarts,
                notes=notes,
                close=close,
                is_final=is_final,
                now_ms=now_ms,
            )
        report = _with_progress(
            lambda progress: recount(plan, now_ms=now_ms, progress=progress), show_progress
        )
        # ZooKeeper takes seconds to start: only if what it knows matters.
        unknown = sum(tier["unknown"] for tier in report["totals"]["tiers"].values())
        missing = sum(tier["missing"] for tier in report["totals"]["tiers"].values())
        mirrored = dirs.mirrored(notes.append) if summary is None and unknown else None
        losses = dirs.losses(notes.append) if summary is None and missing else []
        if mirrored is not None or losses:
            plan = replace(_disk_plan(dirs, topics, restarts, mirrored), losses=losses)
            report = _with_progress(
                lambda progress: recount(plan, now_ms=now_ms, progress=progress), show_progress
            )
        if summary is None and unknown:
            notes += dirs.unnamed(mirrored)
    except UNREADABLE as error:  # 1 would say that something is missing
        refuse(f"not everything can be read: {first_line(error)}")
    finally:
        for step in close:
            step()
    report["notes"] = notes + report["notes"]
    return report


def _known_restarts(dirs: Directories, summary: Json | None) -> "list[Restart]":
    """The restarts that the service has on record, or the stopped deployment; of directories that
    were given none are known."""
    from kafka2011.services.audit.restarts import Restart, read_restarts

    if summary is not None:
        return [Restart(each["name"], each["time_ms"]) for each in summary["restarts"]]
    try:
        return [] if dirs.given else read_restarts(dirs.var / "run" / "restarts.json")
    except ValueError as error:
        refuse(str(error))


def _disk_plan(
    dirs: Directories,
    topics: Sequence[str],
    restarts: Sequence[Any],
    mirrored: "Confirmed | None" = None,
) -> "RecountPlan":
    from kafka2011.services.audit.recount.counting import RecountPlan

    sources = dirs.sources(mirrored)
    warehouse = dirs.warehouse()
    tiers = [tier for tier in ("live", "offline") if any(s.tier == tier for s in sources)]
    if not tiers:
        refuse(
            f"no audit service answers and no broker logs are below {dirs.var}: --dir names the "
            "directory of a deployment, --url an audit service elsewhere"
        )
    if warehouse is not None:
        tiers.append("warehouse")
    return RecountPlan(
        tiers=tiers,
        sources=sources,
        warehouse_dir=warehouse,
        topics=topics or None,
        restarts=restarts,
        source_name="disk",
        forms=dirs.forms(),
    )


def _brokers_plan(
    summary: Json,
    topics: Sequence[str],
    restarts: Sequence[Any],
    *,
    notes: list[str],
    close: list[Callable[[], None]],
    is_final: bool,
    now_ms: int,
) -> "RecountPlan":
    from kafka2011.coordination.errors import CoordinationError
    from kafka2011.coordination.zookeeper import ZooKeeperRegistry
    from kafka2011.events.forms import forms_of
    from kafka2011.runtime.config import address_map
    from kafka2011.services.audit.recount.counting import RecountPlan
    from kafka2011.services.audit.recount.elections import losses
    from kafka2011.services.audit.recount.sources import ClusterSource
    from kafka2011.services.audit.server_filter import server_filter

    places = summary["places"]
    warehouse = storage_path(places["warehouse.dir"]) if places["warehouse.dir"] else None
    # Without one nothing is loaded yet, or the service has its directories elsewhere.
    if warehouse is not None and summary["tiers"]["warehouse"]["count"] and not warehouse.is_dir():
        refuse(f"the service's warehouse is not here: {warehouse}")
    sources: list[Source] = []
    lost: list[Loss] = []
    for tier in summary["tiers"]:
        zk_connect = places.get(f"{tier}.zk.connect")
        if not zk_connect:
            continue
        registry = ZooKeeperRegistry(zk_connect)
        try:
            registry.start()
            close.append(registry.close)
            lost += losses(registry, tier)
            confirmed = _taken_from(tier, list(summary["tiers"]), registry, places)
            sources.append(
                ClusterSource(
                    tier, registry, notes.append, address_map(places["address.map"]), confirmed
                )
            )
        except CoordinationError as error:
            refuse(f"ZooKeeper of {tier} at {zk_connect}: {error}")
    return RecountPlan(
        tiers=list(summary["tiers"]),
        sources=sources,
        warehouse_dir=warehouse,
        window_ms=summary["window_ms"],
        lateness_ms=max(tier["lateness_ms"] for tier in summary["tiers"].values()),
        judged_at_ms=None if is_final else now_ms,
        topics=topics or None,
        restarts=restarts,
        source_name="brokers",
        forms=forms_of(places),
        is_ours=server_filter(
            places.get("audit.servers.whitelist", ""), places.get("audit.servers.blacklist", "")
        ),
        losses=lost,
    )


def _taken_from(
    tier: str, tiers: Sequence[str], registry: "Registry", places: Json
) -> "Confirmed | None":
    """How far the next tier has taken what is in a tier; None if no tier is filled from it."""
    from kafka2011.services.audit.recount.sources import group_offsets
    from kafka2011.services.audit.recount.warehouse_rows import loaded_offsets

    if tier == "live" and "offline" in tiers:
        return group_offsets(registry, places.get("audit.mirror.group", "mirror"))
    if "warehouse" in tiers and tier == tiers[-2]:
        return loaded_offsets(storage_path(places["warehouse.dir"]))
    return None


def _with_progress(work: Callable[[Callable[[str, int], None]], Json], show_progress: bool) -> Json:
    if not show_progress or not sys.stderr.isatty():
        return work(lambda *_: None)
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:
        return work(lambda what, count: status.update(f"{count:,} messages read; now {what}"))
