"""The consumer's public names, and what importing them costs."""

import pytest

from kafka2011 import consumer, producer
from tests.support.commands import run_python


def test_only_public_names_can_be_imported_from_the_package() -> None:
    assert all(getattr(consumer, name) is not None for name in consumer.__all__)
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
    assert run_python("-c", check).stdout == "[]\n"
