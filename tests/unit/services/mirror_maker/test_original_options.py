import pytest

from kafka2011.runtime import config
from kafka2011.runtime.config import ConfigError
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.original_options import translated

CONSUMER = {
    "zk.connect": "live:2181",
    "groupid": "kafka-mirror",
    "zk.connectiontimeout.ms": "1000000",
    "fetch.size": "1048576",
    "autocommit.interval.ms": "700",
    "shallowiterator.enable": "true",
    "mirror.topics.whitelist": "old",
    "address.map": "a:1=b:2",
}
PRODUCER = {
    "zk.connect": "offline:2181",
    "producer.type": "async",
    "compression.codec": "0",
    "max.message.size": "2000000",
    "zk.sessiontimeout.ms": "1",
    "address.map": "c:3=d:4",
    "mirror.batch.ms": "9",
}


def test_the_originals_files_make_a_mirrors_settings() -> None:
    found, without_effect = translated(CONSUMER, PRODUCER)
    overrides = [f"{name}={text}" for name, text in found.items()]
    made, _ = config.load(MirrorConfig, overrides=overrides, environment={})
    assert (made.source_zk_connect, made.target_zk_connect) == ("live:2181", "offline:2181")
    assert (made.group_id, made.commit_interval_ms) == ("kafka-mirror", 700)
    assert (made.fetch_size, made.message_bytes_max, made.batch_ms) == (1_048_576, 2_000_000, 9)
    assert made.zk_session_timeout_ms == 6000  # that of the producer file is the target's
    assert set(made.address_map) == {("a", 1), ("c", 3)}
    of_consumer = ["shallowiterator.enable", "mirror.topics.whitelist"]
    of_producer = ["producer.type", "compression.codec", "zk.sessiontimeout.ms"]
    assert without_effect == of_consumer + of_producer


def test_a_target_without_zookeeper_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"zk\.connect"):
        translated({"zk.connect": "a:1"}, {"broker.list": "0:b:9092"})
