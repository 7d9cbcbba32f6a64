import pytest

from kafka2011.producer import Producer, ProducerConfig
from kafka2011.producer.requests import RequestLimits
from kafka2011.runtime.config import ConfigError, settings_of
from tests.unit.producer.support import sent, sync_producer

# Every setting of 0.7's producer (ProducerConfig, SyncProducerConfig, AsyncProducerConfig).
NAMES = """
zk.connect broker.list zk.sessiontimeout.ms zk.connectiontimeout.ms zk.synctime.ms producer.type
serializer.class partitioner.class compression.codec compressed.topics buffer.size
connect.timeout.ms socket.timeout.ms reconnect.interval reconnect.time.interval.ms max.message.size
queue.time queue.size queue.enqueueTimeout.ms batch.size num.retries zk.read.num.retries
callback.handler callback.handler.props event.handler event.handler.props host port
"""


def test_every_property_of_the_originals_producer_is_known_and_all_but_one_have_an_effect() -> None:
    settings = settings_of(ProducerConfig)
    assert set(NAMES.split()) <= set(settings)
    without = [name for name in NAMES.split() if not settings[name].metadata["has_effect"]]
    assert without == ["zk.synctime.ms"]


def test_a_setting_without_effect_is_logged(server, caplog) -> None:
    sync_producer(server, zk_sync_time_ms=1).close()
    assert "zk_sync_time_ms has no effect" in caplog.text


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"broker_list": ()}, "exactly one"),
        ({"zk_connect": "h:2"}, "not both"),
        ({"broker_list": "h:1"}, "id:host:port"),
        ({"partitioner": "builtins:max"}, "partitioner.class"),
        ({"compression_codec": "9"}, "gzip"),
        ({"serializer": "no.such:thing"}, "imported"),
        ({"serializer": "..:x"}, "cannot be imported: TypeError: "),
        ({"serializer": "broken_module:x"}, "cannot be imported: SyntaxError: .*line 1"),
        ({"serializer": "raising_module:x"}, "cannot be imported: RuntimeError: no licence"),
        ({"request_bytes_max": 100}, r"request\.bytes\.max must be 0 or"),
        ({"callback_handler": "no.such.Thing"}, "cannot be imported"),
        ({"callback_handler": "collections.OrderedDict"}, "is not a ProducerCallbacks"),
        ({"event_handler": "collections.OrderedDict"}, "is not a function"),
        ({"event_handler": "Word"}, "package.module.Name"),
        ({"callback_handler_props": "word"}, "name=value"),
    ],
)
def test_settings_that_do_not_fit(settings, reason, tmp_path, monkeypatch) -> None:
    (tmp_path / "broken_module.py").write_text("def :")
    (tmp_path / "raising_module.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=reason):
        Producer(**{"broker_list": "0:h:1", "producer_type": "async", **settings})


def test_host_and_port_or_an_address_map_say_where_to_connect(server) -> None:
    mapped = {("published.example", 9092): server.address}
    with (
        Producer(host=server.host, port=server.port) as direct,
        Producer(broker_list="0:published.example:9092", address_map=mapped) as through_map,
    ):
        direct.send("a", b"x")
        direct.flush()
        through_map.send("a", b"y")
        through_map.flush()
    assert sent(server) == [b"x", b"y"]


def test_a_request_has_room_for_a_message_of_the_largest_size() -> None:
    """Unset, the limits grow with max.message.size; set, they bound the message."""
    brokers = ((0, ("h", 1)),)
    usual = ProducerConfig(broker_list=brokers)
    assert usual.payload_bytes_max == 1_000_000
    assert usual.request_limits == RequestLimits(1_000_000, 8 * 2**20, 12 * 2**20, 500)
    large = ProducerConfig(broker_list=brokers, max_message_bytes=20 * 2**20)
    assert large.request_limits.set_bytes_max == large.payload_bytes_max + 10
    small = ProducerConfig(broker_list=brokers, request_bytes_max=100_000)
    assert small.payload_bytes_max == small.request_limits.set_bytes_max - 10 < 100_000
