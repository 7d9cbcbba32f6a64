"""The broker's settings: 0.7's names and sample file, visibility, per-topic maps, the docs."""

from pathlib import Path

import pytest

from kafka2011.broker.config import HOUR_MS, BrokerConfig
from kafka2011.broker.log.retention import SegmentSummary
from kafka2011.runtime.config import ConfigError, documented, load
from tests import ROOT

# The values shipped with the release with comments, and with an unknown name.
SAMPLE = """\
# see kafka.server.KafkaConfig for additional details and defaults
brokerid=0
#hostname=
port=9092
num.threads=8
socket.send.buffer=1048576
socket.receive.buffer=1048576
max.socket.request.bytes=104857600
log.dir=/tmp/kafka-logs
num.partitions=1
log.flush.interval=10000
log.default.flush.interval.ms=1000
log.default.flush.scheduler.interval.ms=1000
#topic.flush.intervals.ms=topic1:1000, topic2:3000
log.retention.hours=168
#log.retention.size=1073741824
log.file.size=536870912
log.cleanup.interval.mins=1
enable.zookeeper=true
zk.connect=localhost:2181
zk.connectiontimeout.ms=1000000
a.name.of.the.future=1
"""


def made(*overrides: str) -> BrokerConfig:
    words = ["brokerid=0", "log.dir=/data/logs", "enable.zookeeper=false", *overrides]
    return load(BrokerConfig, overrides=words, environment={})[0]


def test_sample_file_of_the_release_works_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(SAMPLE)
    config, warnings = load(BrokerConfig, file=file, environment={})
    assert (config.port, config.broker_id, config.request_bytes_max) == (9092, 0, 104857600)
    assert (config.flush_interval_messages, config.scheduler_interval_ms) == (10000, 1000)
    assert not config.group_commit
    assert config.zk_connection_timeout_ms == 1_000_000
    assert len(warnings) == 2
    assert any("a.name.of.the.future" in warning for warning in warnings)
    assert any("num.threads" in warning for warning in warnings)


def test_every_name_of_0_7_is_accepted() -> None:
    of_07 = """
        brokerid port hostname log.dir num.threads num.partitions topic.partition.count.map
        socket.send.buffer socket.receive.buffer max.socket.request.bytes max.message.size
        log.file.size topic.log.file.size log.roll.hours topic.log.roll.hours
        log.retention.hours topic.log.retention.hours log.retention.size topic.log.retention.size
        log.cleanup.interval.mins log.flush.interval log.default.flush.scheduler.interval.ms
        log.default.flush.interval.ms topic.flush.intervals.ms enable.zookeeper
        monitoring.period.secs max.topic.name.length zk.connect zk.sessiontimeout.ms
        zk.connectiontimeout.ms zk.synctime.ms
    """
    assert set(of_07.split()) <= {name for name, *_ in documented(BrokerConfig)}


def test_docs_name_every_setting() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for name, _, _, sentence in documented(BrokerConfig):
        assert f"| `{name}` |" in text, f"docs/operations.md lacks {name}"
        assert sentence in text, f"docs/operations.md says something else of {name}"


@pytest.mark.parametrize(
    ("override", "interval_ms"),
    [
        ("log.flush.interval=500", 3000),
        ("log.default.flush.scheduler.interval.ms=3000", 3000),
        ("log.default.flush.interval.ms=1000", 1000),
        ("topic.flush.intervals.ms=t:100", 3000),
    ],
)
def test_any_flush_property_brings_0_7_s_visibility(override: str, interval_ms: int) -> None:
    assert made().group_commit
    config = made(override)
    assert not config.group_commit
    other = config.log_settings()("other")
    assert (other.flush_interval_messages, other.flush_interval_ms) == (500, interval_ms)


def test_per_topic_settings_win() -> None:
    config = made(
        "num.partitions=2",
        "topic.partition.count.map=wide:8",
        "topic.log.file.size=small:1000",
        "topic.log.roll.hours=small:2",
        "topic.flush.intervals.ms=fast:10",
        "log.flush.interval=7",
    )
    small, fast, other = map(config.log_settings(), ("small", "fast", "other"))
    assert (config.partition_count("wide"), config.partition_count("other")) == (8, 2)
    assert (small.segment_bytes_max, other.segment_bytes_max) == (1000, 2**30)
    assert (small.roll_age_ms, other.roll_age_ms) == (2 * HOUR_MS, 168 * HOUR_MS)
    assert (fast.flush_interval_ms, other.flush_interval_messages) == (10, 7)


def test_retention_is_by_age_then_by_size_and_can_be_replaced() -> None:
    config = made(
        "log.retention.hours=1",
        "topic.log.retention.hours=long:100",
        "log.retention.size=100",
        "topic.log.retention.size=big:10000000000",
    )
    segments = [SegmentSummary(start, 100, 0) for start in (0, 100, 200)]
    old, young = 2 * HOUR_MS, 1

    def removed(topic: str, age_ms: int) -> int:
        return config.log_settings()(topic).retention(segments, age_ms)

    assert (removed("t", old), removed("t", young)) == (3, 2)
    assert (removed("long", old), removed("big", young)) == (2, 0)
    keep_all = config.log_settings(lambda _topic: lambda _segments, _now_ms: 0)
    assert keep_all("t").retention(segments, old) == 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["port=70000"], "port='70000' in --set: must be at most 65535"),
        (["log.flush.interval=0"], "at least 1"),
        (["enable.zookeeper=yes"], "exactly true or false"),
        (["topic.log.file.size=t"], "must be topic:number"),
        (["topic.name.rule=lax"], "must be one of strict, 0.7"),
        (["enable.zookeeper=true"], "zk.connect is required"),
        (["bind.address=0.0.0.0"], "set hostname as well"),
        (["enable.zookeeper=true", "zk.connect=z:1", "hostname=::1"], "IPv6"),
        (["log.retention.size=-2"], "at least -1"),
        (["connections.unlimited.addresses=::1,balancer"], "'balancer' must be an IP address"),
    ],
)
def test_bad_values_are_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        made(*overrides)
    assert "\n" not in str(raised.value)


def test_all_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"^brokerid, log\.dir are required: set each in the "):
        load(BrokerConfig, environment={})


@pytest.mark.parametrize(
    ("overrides", "listen", "published"),
    [
        ([], "127.0.0.1", "127.0.0.1"),
        (["hostname=10.0.0.5"], "10.0.0.5", "10.0.0.5"),
        (["bind.address=10.0.0.6"], "10.0.0.6", "10.0.0.6"),
        (["bind.address=0.0.0.0", "hostname=broker-1"], "0.0.0.0", "broker-1"),
    ],
)
def test_addresses(overrides: list[str], listen: str, published: str) -> None:
    config = made(*overrides)
    assert (config.listen_address, config.published_host) == (listen, published)


def test_unlimited_addresses_have_one_form() -> None:
    """Clients are compared with them as text."""
    config = made("connections.unlimited.addresses=10.0.0.5, ::ffff:10.0.0.6,2001:DB8:0::1")
    assert config.unlimited_addresses == ("10.0.0.5", "10.0.0.6", "2001:db8::1")


def test_quarantine_lies_beside_the_logs() -> None:
    assert made().quarantine == Path("/data/logs-quarantine")
    assert made("quarantine.dir=/elsewhere").quarantine == Path("/elsewhere")


@pytest.mark.parametrize("log_dir", [".", "below/..", "../.."])
def test_quarantine_lies_beside_a_directory_that_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_dir: str
) -> None:
    """A broker with `log.dir=.` did not start: its quarantine would be inside of it."""
    place = tmp_path / "a" / "b" / "c"
    (place / "below").mkdir(parents=True)
    monkeypatch.chdir(place)
    real = (place / log_dir).resolve()
    found = made(f"log.dir={log_dir}").quarantine
    assert found == real.parent / f"{real.name}-quarantine"
