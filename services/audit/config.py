"""Settings of `kafka2011 audit serve`."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.settings import FormSettings
from kafka2011.events.topics import RESULT_TOPICS
from kafka2011.runtime.config import boolean, comma_list, path, setting, text, whole
from kafka2011.runtime.shared_settings import (
    MIRROR_GROUP,
    AuditWindow,
    DatacenterSettings,
    DataDir,
    DialSettings,
    FetchSize,
    WarehousePlace,
    ZooKeeperSessionSettings,
    shared,
)
from kafka2011.services.audit.server_filter import IsOurs, server_filter

TIERS = ("live", "offline", "warehouse")  # in the order in which messages pass them
LATENESS_MS_MAX_DEFAULT = 60_000
FETCH_BYTES_DEFAULT = 512 * 1024


def _exempt(value: str) -> frozenset[tuple[str, str]]:
    """(tier, topic) pairs of `tier:topic,tier:topic`. Raises ValueError."""
    found = set()
    for part in comma_list(value):
        tier, colon, topic = part.partition(":")
        if not colon or tier not in TIERS or not topic:
            raise ValueError(f"{part!r} must be tier:topic, the tier one of {', '.join(TIERS)}")
        found.add((tier, topic))
    return frozenset(found)


def _tier_times(value: str) -> dict[str, int]:
    """Times by tier of `tier:ms,tier:ms`. Raises ValueError."""
    found = {}
    for part in comma_list(value):
        tier, colon, number = part.partition(":")
        if not colon or tier not in TIERS:
            raise ValueError(f"{part!r} must be tier:ms, the tier one of {', '.join(TIERS)}")
        found[tier] = whole(0)(number)
    return found


@dataclass(frozen=True, kw_only=True)
class AuditConfig(
    FormSettings,
    DatacenterSettings,
    WarehousePlace,
    AuditWindow,
    DialSettings,
    ZooKeeperSessionSettings,
    DataDir,
):
    """The audit's settings. A tier is audited when its ZooKeeper or directory is set."""

    data_dir: Path = shared(
        DataDir,
        "data.dir",
        default=Path("var/audit"),
        doc="directory of audit.sqlite, the counts and offsets",
    )
    lateness_ms: int | None = setting(
        "audit.lateness.ms",
        None,
        whole(0),
        "time after a window's end for which it may stay incomplete, ms; "
        "unset: one window, at most a minute",
    )
    tier_lateness_ms: dict[str, int] = setting(
        "audit.tier.lateness.ms", {}, _tier_times, "audit.lateness.ms of single tiers, tier:ms,..."
    )
    mirror_group: str = setting(
        "audit.mirror.group",
        MIRROR_GROUP,
        text,
        "groupid of the mirror whose confirmed offsets say how far the offline tier has come",
    )
    exempt: frozenset[tuple[str, str]] = setting(
        "audit.exempt", frozenset(), _exempt, "topics that need not reach a tier, tier:topic,..."
    )
    topics_ignored: tuple[str, ...] = setting(
        "audit.topics.ignored",
        RESULT_TOPICS,
        comma_list,
        "topics that are not audited, comma-separated; unset: those that process site writes",
    )
    servers_whitelist: str = setting(
        "audit.servers.whitelist",
        "",
        text,
        "regular expression: behind the live tier, count only messages of servers that match",
    )
    servers_blacklist: str = setting(
        "audit.servers.blacklist",
        "",
        text,
        "regular expression: behind the live tier, leave out messages of servers that match",
    )
    restarts_file: Path | None = setting(
        "audit.restarts.file",
        None,
        path,
        "JSON list of {name, time_ms} of restarted processes, which may redeliver messages",
    )
    redelivery_expected: bool = setting(
        "audit.redelivery.expected",
        False,
        boolean,
        "true: extra messages count as redelivered at any time (when there is no restarts file)",
    )
    redelivery_grace_ms: int = setting(
        "audit.redelivery.grace.ms",
        600_000,
        whole(0),
        "windows that began up to this long after a restart may show redelivered messages, ms",
    )
    fold_after_ms: int = setting(
        "audit.fold.after.ms",
        3_600_000,
        whole(0),
        "age of a window at which its balanced cells are folded into totals, ms",
    )
    cells_max: int = setting(
        "audit.cells.max",
        200_000,
        whole(100),
        "cells above which judged ones are folded too; above twice this, the oldest of any kind",
    )
    instances_keep_ms: int = setting(
        "audit.instances.keep.ms",
        7 * 24 * 3_600_000,
        whole(0),
        "time after which a producer without monitoring events is set aside, ms",
    )
    commit_interval_ms: int = setting(
        "audit.commit.ms",
        500,
        whole(10),
        "time between two commits of counts and offsets, ms",
    )
    refresh_interval_ms: int = setting(
        "audit.refresh.ms",
        1_000,
        whole(10),
        "time between two reads of the topics from ZooKeeper, ms",
    )
    poll_interval_ms: int = setting(
        "audit.poll.ms",
        50,
        whole(1),
        "longest pause after an empty fetch for which the broker did not wait, ms",
    )
    warehouse_poll_interval_ms: int = setting(
        "audit.warehouse.poll.ms",
        500,
        whole(10),
        "time between two polls of the tables' commits, ms",
    )
    fetch_bytes: int = shared(
        FetchSize, "fetch.size", default=FETCH_BYTES_DEFAULT, parse=whole(64, 2**31 - 1)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tiers:
            raise ValueError(
                "nothing to audit: set live.zk.connect, offline.zk.connect or warehouse.dir"
            )
        server_filter(self.servers_whitelist, self.servers_blacklist)

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that are audited, in order."""
        given = (self.live_zk_connect, self.offline_zk_connect, self.warehouse_dir)
        return tuple(tier for tier, place in zip(TIERS, given, strict=True) if place)

    @property
    def is_ours(self) -> IsOurs | None:
        """Which servers' messages are counted behind the live tier; None: all."""
        return server_filter(self.servers_whitelist, self.servers_blacklist)

    def lateness_of(self, tier: str) -> int:
        """Allowed lateness at a tier, ms."""
        general = self.lateness_ms
        if general is None:
            general = min(self.window_ms, LATENESS_MS_MAX_DEFAULT)
        return self.tier_lateness_ms.get(tier, general)
