"""Znode paths and values: the texts of the reference (7.2-7.4) and of the captures (section 5)."""

import re

import pytest

from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.paths import BrokerPartition, StaticSubscription, WildcardSubscription
from tests import ROOT


def test_paths_of_the_reference() -> None:
    partition = BrokerPartition(0, 3)
    assert paths.broker_id_path(0) == "/brokers/ids/0"
    assert paths.topic_broker_path("clicks", 0) == "/brokers/topics/clicks/0"
    assert paths.consumer_id_path("g1", "g1_w-1-2") == "/consumers/g1/ids/g1_w-1-2"
    assert paths.owner_path("g1", "clicks", partition) == "/consumers/g1/owners/clicks/0-3"
    assert paths.offset_path("g1", "clicks", partition) == "/consumers/g1/offsets/clicks/0-3"
    assert paths.process_alive_path("live", "b") == "/kafka2011/processes/live/b/alive"
    assert paths.parents("/a/b/c") == ["/a", "/a/b"]
    assert paths.parents("/a") == []


def test_broker_values() -> None:
    assert (
        paths.encode_broker("192.0.2.10", 9092, 1315436360737)
        == b"192.0.2.10-1315436360737:192.0.2.10:9092"
    )
    assert paths.decode_broker(b"127.0.0.1-1795217793978:127.0.0.1:22092") == ("127.0.0.1", 22092)
    assert paths.decode_broker(b"any:host.example:1:more") == ("host.example", 1)


@pytest.mark.parametrize(
    "value", [None, b"", b"a:b", b"a::9092", b"a:b:port", b"a:b:70000", b"\xff:b:1", b"x" * 70_000]
)
def test_bad_broker_values(value: bytes | None) -> None:
    with pytest.raises(BadZnode):
        paths.decode_broker(value)


def test_offsets_and_counts() -> None:
    assert paths.decode_offset(b"286894308") == 286894308
    assert paths.decode_offset(b"9223372036854775807") == 2**63 - 1
    assert paths.encode_number(0) == b"0"
    assert paths.decode_partition_count(b"4") == 4
    for bad in (None, b"", b"-1", b"1.5", b"x", b"9223372036854775808", "１".encode(), b"1\n"):
        with pytest.raises(BadZnode):
            paths.decode_offset(bad)
    with pytest.raises(BadZnode):
        paths.decode_partition_count(b"999999999")


def test_broker_partition_names() -> None:
    assert paths.decode_broker_partition("10-2") == (10, 2)
    assert BrokerPartition(10, 2).text == "10-2"
    for bad in ("", "1", "-1-2", "1-2-3", "a-b", "1-2\n"):
        with pytest.raises(BadZnode):
            paths.decode_broker_partition(bad)


def test_subscription_texts() -> None:
    static = StaticSubscription({"a": 1, "b": 4})
    assert paths.encode_subscription(static) == b'{ "a": 1,"b": 4 }'
    assert paths.encode_subscription(StaticSubscription({"clicks": 2})) == b'{ "clicks": 2 }'
    white = WildcardSubscription("whitelist", 4, "white.*")
    black = WildcardSubscription("blacklist", 2, "black.*")
    assert paths.encode_subscription(white) == b"*4*white.*"
    assert paths.encode_subscription(black) == b"!2!black.*"
    for subscription in (static, white, black):
        assert paths.decode_subscription(paths.encode_subscription(subscription)) == subscription
    assert paths.decode_subscription(b"*1*cons") == WildcardSubscription("whitelist", 1, "cons")
    assert paths.decode_subscription(b"*1*a*b!c") == WildcardSubscription("whitelist", 1, "a*b!c")
    assert paths.decode_subscription(b'{"x":3}') == StaticSubscription({"x": 3})
    assert paths.decode_subscription(b"{ }") == StaticSubscription({})


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        b'{"a": "1"}',
        b'{"a": true}',
        b'{"a": -1}',
        b"{",
        b"*x*y",
        b"*1!y",
        b"\xff",
        b"[" * 60_000,
    ],
)
def test_bad_subscriptions(value: bytes | None) -> None:
    with pytest.raises(BadZnode):
        paths.decode_subscription(value)


def test_the_page_of_znodes_names_every_path_of_the_registry() -> None:
    page = (ROOT / "docs" / "znodes.md").read_text()
    docstring = paths.__doc__ or ""
    named = re.findall(r"^  (/.*?)  ? *(?:ephemeral|persistent)", docstring, re.MULTILINE)
    assert len(named) >= 9
    short = {"<id>-<partition>": "<broker id>-<partition>"}
    for path in named:
        written = path.strip()
        for brief, full in short.items():
            written = written.replace(brief, full)
        assert f"`{written}`" in page, written
