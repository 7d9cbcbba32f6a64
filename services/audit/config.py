"""Settings of `kafka2011 audit serve`."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.events.settings import FormSettings
from kafka2011.runtime.config import address_map, comma_list, path, setting, text, whole
from kafka2011.services.audit.server_filter import IsOurs, server_filter

TIERS = ("live", "offline", "warehouse")  # in the order in which messages pass them
LATENESS_MS_MAX_DEFAULT = 60_000
FETCH_BYTES_DEFAULT = 512 * 1024


def _exempt(value: str) -> frozenset[tuple[str, str]]:
    """`tier:topic,tier:topic`."""
    found = set()
    for part in comma_list(value):
        tier, colon, topic = part.partition(":")
        if not colon or tier not in TIERS or not topic:
            raise ValueError(f"{part!r} must be tier:topic, the tier one of {', '.join(TIERS)}")
        found.add((tier, topic))
    return frozenset(found)


def _tier_times(value: str) -> dict[str, int]:
    """`tier:ms,tier:ms`."""
    found = {}
    for part in comma_list(value):
        tier, colon, number = part.partition(":")
        if not colon or tier not in TIERS:
            raise ValueError(f"{part!r} must be tier:ms, the tier one of {', '.join(TIERS)}")
        found[tier] = whole(0)(number)
    return found


def _switch(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError("must be exactly true or false")
    return value == "true"


@dataclass(frozen=True, kw_only=True)
class AuditConfig(FormSettings):
    """A tier is audited when the setting that leads to it is given."""

    live_zk_connect: str = setting(
        "live.zk.connect", "", text, "ZooKeeper of the live brokers; empty: no such tier"
    )
    offline_zk_connect: str = setting(
        "offline.zk.connect", "", text, "ZooKeeper of the offline brokers; empty: no such tier"
    )
    warehouse_dir: Path | None = setting(
        "warehouse.dir", None, path, "directory of the Delta tables; unset: no such tier"
    )
    data_dir: Path = setting(
        "data.dir", Path("var/audit"), path, "where counts and offsets are kept (audit.sqlite)"
    )
    window_ms: int = setting(
        "audit.window.ms", 600_000, whole(1), "width of a window, as the producers have it, ms"
    )
    lateness_ms: int | None = setting(
        "audit.lateness.ms",
        None,
        whole(0),
        "how long after its end a window may still be incomplete, ms; "
        "unset: as long as a window, at most a minute",
    )
    tier_lateness_ms: dict[str, int] = setting(
        "audit.tier.lateness.ms", {}, _tier_times, "exceptions, as tier:ms,tier:ms"
    )
    exempt: frozenset[tuple[str, str]] = setting(
        "audit.exempt", frozenset(), _exempt, "topics that need not reach a tier, as tier:topic,..."
    )
    topics_ignored: tuple[str, ...] = setting(
        "audit.topics.ignored", (), comma_list, "topics that are not audited at all"
    )
    servers_whitelist: str = setting(
        "audit.servers.whitelist",
        "",
        text,
        "regular expression; behind the live tier count only messages of servers that match",
    )
    servers_blacklist: str = setting(
        "audit.servers.blacklist",
        "",
        text,
        "regular expression; behind the live tier leave out messages of servers that match",
    )
    restarts_file: Path | None = setting(
        "audit.restarts.file",
        None,
        path,
        "JSON list of {name, time_ms} of restarted processes: excuses redelivered messages",
    )
    redelivery_expected: bool = setting(
        "audit.redelivery.expected",
        False,
        _switch,
        "true: list extras as redelivered always (where no restarts file is kept)",
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
        "cells that balance are folded into totals when their window is this old, ms",
    )
    cells_max: int = setting(
        "audit.cells.max",
        200_000,
        whole(100),
        "above this judged cells are folded too, above twice this the oldest of any kind",
    )
    instances_keep_ms: int = setting(
        "audit.instances.keep.ms",
        7 * 24 * 3_600_000,
        whole(0),
        "how long a producer's monitoring events are remembered to recognise repeats, ms",
    )
    commit_interval_ms: int = setting(
        "audit.commit.ms",
        500,
        whole(10),
        "pause between two transactions of counts and offsets, ms",
    )
    refresh_interval_ms: int = setting(
        "audit.refresh.ms", 1_000, whole(10), "pause between two looks at ZooKeeper for topics, ms"
    )
    poll_interval_ms: int = setting(
        "audit.poll.ms", 50, whole(1), "longest pause between two fetches when nothing comes, ms"
    )
    warehouse_poll_interval_ms: int = setting(
        "audit.warehouse.poll.ms", 500, whole(10), "pause between two looks at the tables, ms"
    )
    fetch_bytes: int = setting(
        "fetch.size", FETCH_BYTES_DEFAULT, whole(64, 2**31 - 1), "bytes asked for of each partition"
    )
    socket_timeout_ms: int = setting(
        "socket.timeout.ms", 30_000, whole(1), "longest wait for a broker's answer, ms"
    )
    zk_session_timeout_ms: int = setting(
        "zk.sessiontimeout.ms", 6_000, whole(1), "session timeout asked of ZooKeeper, ms"
    )
    address_map: dict[tuple[str, int], tuple[str, int]] = setting(
        "address.map", {}, address_map, "published address=address to dial, comma-separated"
    )

    def __post_init__(self) -> None:
        if not self.tiers:
            raise ValueError(
                "nothing to audit: set live.zk.connect, offline.zk.connect or warehouse.dir"
            )
        server_filter(self.servers_whitelist, self.servers_blacklist)

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that this service counts, in order."""
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
