"""What the online consumer says of its lag while that cannot be fetched."""

from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination.errors import CoordinationError
from kafka2011.services.online_consumer.app import MemberCollector, OnlineMember, topic_filter
from kafka2011.services.online_consumer.config import OnlineConsumerConfig

NAMES = [TopicPartition("clicks", 1, 0), TopicPartition("clicks", 2, 0)]


class FakeConnector:
    """Of a member that owns two partitions. Without `lags` their lag cannot be fetched."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(group_id="g", audit_enable=False)
        self.lags: dict[TopicPartition, int | None] | None = None

    def owned(self) -> list[TopicPartition]:
        return NAMES

    def positions(self) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(NAMES, 5)

    def lag(self) -> dict[TopicPartition, int | None]:
        if self.lags is None:
            raise CoordinationError("ZooKeeper does not answer")
        return self.lags


@pytest.mark.parametrize("text", ["clicks", '"clicks"', " 'clicks, views' ", '"clicks|views"'])
def test_a_blacklist_may_be_quoted_as_in_0_7(text: str) -> None:
    found = topic_filter(OnlineConsumerConfig(topics_blacklist=text))
    assert found.select(["audit", "clicks", "orders"]) == ["orders"]


@pytest.fixture
def connector() -> FakeConnector:
    return FakeConnector()


@pytest.fixture
def member(connector: FakeConnector) -> OnlineMember:
    config = OnlineConsumerConfig(zk_connect="memory:1")
    return OnlineMember(config, connector, None)  # type: ignore[arg-type]


def exported(member: OnlineMember) -> list[str]:
    """The samples of the lag."""
    registry = CollectorRegistry()
    registry.register(MemberCollector(member))
    text = generate_latest(registry).decode()
    return [line.rpartition(" ")[2] for line in text.splitlines() if "lag_bytes{" in line]


def test_a_lag_that_is_not_known_is_exported_as_no_number(
    connector: FakeConnector, member: OnlineMember
) -> None:
    connector.lags = dict(zip(NAMES, (7, None), strict=True))
    member.sample()
    assert exported(member) == ["7.0", "NaN"]


def test_a_lag_that_could_not_be_fetched_is_not_the_one_before(
    connector: FakeConnector, member: OnlineMember
) -> None:
    connector.lags = dict(zip(NAMES, (7, 8), strict=True))
    member.sample()
    connector.lags = None
    member.sample()
    assert exported(member) == ["NaN", "NaN"]
