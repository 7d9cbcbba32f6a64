"""Keywords of the clients' constructors: one line for a wrong one, and types for type checkers."""

from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from kafka2011 import Consumer, Producer, SimpleConsumer
from kafka2011.consumer import ConsumerConfig
from kafka2011.consumer.keywords import ConsumerSettings
from kafka2011.producer import AioProducer, ProducerConfig, ShippingHandler
from kafka2011.producer.keywords import ProducerSettings
from kafka2011.runtime.config import ConfigError, settings_of

BROKERS = {"broker_list": "0:h:1"}
HANDLER = "ShippingHandler"


@pytest.mark.parametrize(
    ("call", "owner", "said"),
    [
        (lambda: Producer(broker_lst="x"), "Producer", "'broker_lst'; did you mean broker_list?"),
        (lambda: Producer(rgn=1, **BROKERS), "Producer", "'rgn'; did you mean rng?"),
        (lambda: Producer(zzz=1, **BROKERS), "Producer", "'zzz'"),
        (lambda: AioProducer(port_=1), "AioProducer", "'port_'; did you mean port?"),
        (lambda: ShippingHandler("t", encodr=1), HANDLER, "'encodr'; did you mean encoder?"),
        (lambda: Consumer(groupid="g"), "Consumer", "'groupid'; did you mean group_id?"),
        (lambda: SimpleConsumer("h", prt=1), "SimpleConsumer", "'prt'; did you mean port?"),
    ],
)  # fmt: skip
def test_a_wrong_keyword_is_one_line_with_the_closest_one(
    call: Callable[[], object], owner: str, said: str
) -> None:
    with pytest.raises(TypeError) as raised:
        call()
    assert str(raised.value) == f"{owner} has no keyword {said}"


def test_what_lacks_or_is_out_of_place_is_one_line() -> None:
    with pytest.raises(TypeError, match=r"^Consumer needs the keyword 'group_id'$"):
        Consumer()
    with pytest.raises(
        TypeError, match=r"^Producer: '0:h:1' is not a configuration; pass settings"
    ):
        Producer("0:h:1")


def test_a_consumers_values_may_be_texts_as_in_a_properties_file() -> None:
    with pytest.raises(ConfigError, match="must be a whole number"):
        Consumer(group_id="g", consumer_timeout_ms="soon")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("batch_size", -1),
        ("batch_size", 0),
        ("batch_size", 2.5),
        ("batch_size", True),
        ("queue_time_ms", 10**19),
        ("connect_timeout_ms", 10**19),
        ("required_acks", -7),
        ("num_retries", -1),
        ("window_ms", 0),
        ("socket_timeout_ms", 0),
        ("socket_timeout_ms", None),
        ("compression_codec", 7),
        ("producer_type", None),
        ("producer_type", 1),
    ],
)
def test_a_value_that_is_no_text_has_the_range_of_its_text(setting: str, value: object) -> None:
    """Else batch_size=-1 loses every message, and nothing says so."""
    for given in (value, str(value)):
        with pytest.raises(ConfigError, match=f"^{setting}={given!r}: must be "):
            Producer(**BROKERS, **{setting: given})  # type: ignore[arg-type]


def test_a_consumers_numbers_have_their_range_too() -> None:
    with pytest.raises(ConfigError, match=r"^fetch_size=0: must be at least 1$"):
        Consumer(group_id="g", zk_connect="h:1", fetch_size=0)


def test_a_configuration_has_the_range_too_whoever_made_it() -> None:
    with pytest.raises(ConfigError, match=r"^batch_size=-1: must be at least 1$"):
        Producer(ProducerConfig(batch_size=-1), **BROKERS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "config_class", "apart"),
    [
        (ProducerSettings, ProducerConfig, {"serializer", "event_handler"}),
        (ConsumerSettings, ConsumerConfig, set()),
    ],
)
def test_a_type_checkers_keywords_are_the_settings(
    keywords: Any, config_class: type, apart: set[str]
) -> None:
    parsed = get_type_hints(config_class)
    fields = {field.name: parsed[field.name] for field in settings_of(config_class).values()}
    assert get_type_hints(keywords) == {
        name: kind if kind is str else kind | str
        for name, kind in fields.items()
        if name not in apart
    }
