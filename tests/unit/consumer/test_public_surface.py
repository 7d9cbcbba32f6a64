"""The consumer's public names, and what importing them costs."""

import subprocess
import sys

import pytest

from kafka2011 import consumer, producer


@pytest.mark.parametrize("name", consumer.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(consumer, name) is not None


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    name = "Nothing"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(consumer, name)


def test_producer_and_consumer_raise_one_broker_unavailable() -> None:
    assert consumer.BrokerUnavailable is producer.BrokerUnavailable


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import kafka2011", ["kafka2011.consumer", "kafka2011.producer"]),
        ("import kafka2011.producer", ["kafka2011.consumer"]),
        (
            "from kafka2011.consumer import SimpleConsumer",
            ["kazoo", "structlog", "kafka2011.consumer.groups", "kafka2011.producer"],
        ),
    ],
)
def test_importing_one_client_does_not_load_the_others(statement: str, absent: list[str]) -> None:
    check = f"{statement}; import sys; print([one for one in {absent!r} if one in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"
