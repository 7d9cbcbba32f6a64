"""Znode paths and values: the texts that 0.7.2 writes and reads."""

import re
from collections.abc import Callable

import pytest

from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.paths import (
    BrokerPartition,
    StaticSubscription,
    Subscription,
    WildcardSubscription,
)
from tests import ROOT


def test_paths_are_those_of_0_7() -> None:
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
    text = b"192.0.2.10-1315436360737:192.0.2.10:9092"
    assert paths.encode_broker("192.0.2.10", 9092, 1315436360737) == text
    assert paths.decode_broker(text) == ("192.0.2.10", 9092)
    assert paths.decode_broker(b"any:host.example:1:more") == ("host.example", 1)


def test_offsets_and_counts() -> None:
    assert paths.decode_offset(b"286894308") == 286894308
    assert paths.decode_offset(b"9223372036854775807") == 2**63 - 1
    assert paths.encode_number(0) == b"0"
    assert paths.decode_partition_count(b"4") == 4


def test_broker_partition_names() -> None:
    assert paths.decode_broker_partition("10-2") == (10, 2)
    assert BrokerPartition(10, 2).text == "10-2"
    for bad in ("", "1", "-1-2", "1-2-3", "a-b", "1-2\n"):
        with pytest.raises(BadZnode):
            paths.decode_broker_partition(bad)


def test_subscription_texts() -> None:
    written: dict[bytes, Subscription] = {
        b'{ "a": 1,"b": 4 }': StaticSubscription({"a": 1, "b": 4}),
        b'{ "clicks": 2 }': StaticSubscription({"clicks": 2}),
        b"*4*white.*": WildcardSubscription("whitelist", 4, "white.*"),
        b"!2!black.*": WildcardSubscription("blacklist", 2, "black.*"),
    }
    read: dict[bytes, Subscription] = {
        b"*1*cons": WildcardSubscription("whitelist", 1, "cons"),
        b"*1*a*b!c": WildcardSubscription("whitelist", 1, "a*b!c"),
        b'{"x":3}': StaticSubscription({"x": 3}),
        b"{ }": StaticSubscription({}),
    }
    assert {paths.encode_subscription(one): one for one in written.values()} == written
    assert {text: paths.decode_subscription(text) for text in written | read} == written | read


JUNK = (None, b"", b"x", b"\xff", b"{", b"[]", b"[" * 60_000, b"x" * 70_000)
BAD = {
    paths.decode_broker: (b"a:b", b"a::9092", b"a:b:port", b"a:b:70000", b"\xff:b:1"),
    paths.decode_offset: (b"-1", b"1.5", b"9223372036854775808", "１".encode(), b"1\n"),
    paths.decode_partition_count: (b"-1", b"999999999"),
    paths.decode_subscription: (b'{"a": "1"}', b'{"a": true}', b'{"a": -1}', b"*x*y", b"*1!y"),
}


@pytest.mark.parametrize("decode", BAD)
def test_bad_values_are_refused(decode: Callable[[bytes | None], object]) -> None:
    for value in (*JUNK, *BAD[decode]):
        with pytest.raises(BadZnode):
            decode(value)


def test_the_page_of_znodes_names_every_path_of_the_registry() -> None:
    page = (ROOT / "docs" / "znodes.md").read_text()
    docstring = paths.__doc__ or ""
    named = re.findall(r"^  (/.*?)  ? *(?:ephemeral|persistent)", docstring, re.MULTILINE)
    assert len(named) >= 9
    for path in named:
        written = path.strip().replace("<id>-<partition>", "<broker id>-<partition>")
        assert f"`{written}`" in page, written
