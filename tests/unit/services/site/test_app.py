"""What the site says of its lag while that cannot be fetched."""

from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination.errors import CoordinationError
from kafka2011.services.site.app import Site, SiteCollector

NAMES = [TopicPartition("clicks", 1, 0), TopicPartition("clicks", 2, 0)]
STATUS = {"events": 1, "unreadable": 0, "missed_bytes": 0, "checkpoint_bytes": 0}


class FakeMember:
    """Of one use. Without `lags` its lag cannot be fetched."""

    def __init__(self, lags: dict[TopicPartition, int | None] | None) -> None:
        self.lags = lags

    def lag(self) -> dict[TopicPartition, int | None]:
        if self.lags is None:
            raise CoordinationError("ZooKeeper does not answer")
        return self.lags

    def status(self) -> dict[str, int]:
        return STATUS


def site_of(**members: FakeMember) -> Site:
    """A site of these members, which measures and writes nothing."""
    found: Any = Site.__new__(Site)
    found.members, found._lag, found._meter, found.meter = members, {}, None, None
    found.writer = SimpleNamespace(written=dict, failed=0)
    return found


def exported(site: Site) -> dict[str, str]:
    """The samples of the lag by use."""
    registry = CollectorRegistry()
    registry.register(SiteCollector(site))
    lines = generate_latest(registry).decode().splitlines()
    found = [line.split('"') for line in lines if "site_lag_bytes{" in line]
    return {use: value.rpartition(" ")[2] for _, use, value in found}


def test_a_lag_of_which_a_part_is_not_known_is_exported_as_no_number() -> None:
    site = site_of(
        ads=FakeMember(dict(zip(NAMES, (7, 8), strict=True))),
        search=FakeMember(dict(zip(NAMES, (7, None), strict=True))),
        trending=FakeMember({}),  # it has no partition yet
    )
    site.sample()
    assert exported(site) == {"ads": "15.0", "search": "NaN"}


def test_a_lag_that_could_not_be_fetched_is_not_the_one_before() -> None:
    member = FakeMember(dict(zip(NAMES, (7, 8), strict=True)))
    site = site_of(ads=member)
    site.sample()
    member.lags = None
    site.sample()
    assert exported(site) == {"ads": "NaN"}
