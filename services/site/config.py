"""Settings of `kafka2011 site`."""

from dataclasses import dataclass
from pathlib import Path

from kafka2011.consumer.config import ConsumerConfig, GroupMember
from kafka2011.events.settings import SchemaSettings
from kafka2011.runtime.config import boolean, comma_list, path, per_topic, setting, text, whole
from kafka2011.runtime.shared_settings import (
    AuditWindow,
    DataDir,
    FetchSettings,
    HeartbeatSettings,
    shared,
)

USES = ("trending", "search", "ads", "abuse", "newsfeed", "operations")


def uses(value: str) -> tuple[str, ...]:
    """Names of uses, each once. Raises ValueError."""
    found = comma_list(value)
    unknown = sorted(set(found) - set(USES))
    if unknown or not found or len(set(found)) != len(found):
        raise ValueError(f"must be some of {', '.join(USES)}, comma-separated, each once")
    return found


@dataclass(frozen=True, kw_only=True)
class SiteConfig(ConsumerConfig, SchemaSettings, AuditWindow, HeartbeatSettings, DataDir):
    """The uses of one process. Each is a consumer group of its own, `<groupid>-<use>`."""

    group_id: str = shared(
        GroupMember,
        "groupid",
        default="site",
        parse=text,
        doc="first part of the consumer groups' names: each use is a group, <groupid>-<use>",
    )
    # The offsets are in the checkpoint; ZooKeeper gets them when that is saved.
    autocommit_enable: bool = shared(
        ConsumerConfig, "autocommit.enable", default=False, parse=boolean
    )
    fetch_gather_ms: int = shared(FetchSettings, "fetch.gather.ms", default=50)
    data_dir: Path = shared(
        DataDir,
        "data.dir",
        default=Path("var/site"),
        parse=path,
        doc="directory of the checkpoints, one for each use",
    )
    uses: tuple[str, ...] = setting(
        "site.uses", USES, uses, "what this process computes, comma-separated"
    )
    checkpoint_interval_ms: int = setting(
        "site.checkpoint.interval.ms",
        5_000,
        whole(100, 3_600_000),
        "time between two checkpoints of a use, ms: a restart reads that much again",
    )
    result_interval_ms: int = setting(
        "site.result.interval.ms",
        10_000,
        whole(0, 3_600_000),
        "time between two writes to the result topics, ms; 0: never",
    )
    budgets: dict[str, int] = setting(
        "site.ads.budgets",
        {},
        per_topic(0, 2**53),
        "budget of each campaign for an hour, in millionths of its currency: campaign:number,...",
    )
    planted: tuple[str, ...] = setting(
        "site.abuse.planted",
        (),
        comma_list,
        "member ids that the synthetic activity makes abuse the site: any other that is found is a "
        "false alarm",
    )

    measure_interval_ms: int = setting(
        "site.measure.interval.ms",
        5_000,
        whole(0, 3_600_000),
        "with the use operations: time between two measurements of all processes, ms; 0: never",
    )
    measured_zk_connect: str = setting(
        "site.measure.zk.connect",
        "",
        text,
        "ZooKeeper of the offline datacenter, whose processes are measured too; empty: left out",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.autocommit_enable:
            raise ValueError("autocommit.enable must be false: a checkpoint has the offsets")

    @property
    def measures(self) -> bool:
        """Whether this process measures the others."""
        return bool(self.measure_interval_ms) and "operations" in self.uses

    def group_of(self, use: str) -> str:
        return f"{self.group_id}-{use}"
