import json
import logging
import logging.config
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafka2011.producer.log_handler import ShippingHandler, json_record
from kafka2011.protocol.message_set import payloads
from kafka2011.runtime.config import ConfigError
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as running:
        yield running


def brokers(broker: ScriptedBroker) -> str:
    return f"0:127.0.0.1:{broker.address[1]}"


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    made = logging.Logger("shop.cart")  # not of the tree of loggers: nobody else sees it
    yield made
    for handler in made.handlers:
        handler.close()


def shipped(broker: ScriptedBroker, topic: str = "app") -> list[bytes]:
    return payloads(bytes(broker.logs.get((topic, -1), b"")))


def attach(log: logging.Logger, broker: ScriptedBroker, **settings: Any) -> ShippingHandler:
    handler = ShippingHandler("app", broker_list=brokers(broker), **settings)
    log.addHandler(handler)
    return handler


def test_records_arrive_in_order_as_the_formatter_writes_them(
    broker: ScriptedBroker, log: logging.Logger
) -> None:
    handler = attach(log, broker)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    for number in range(1200):
        log.warning("item %d", number)
    handler.flush()
    assert shipped(broker) == [b"WARNING shop.cart item %d" % number for number in range(1200)]
    assert (handler.shipped, handler.dropped) == (1200, 0)


def test_the_json_encoder_has_the_stack_trace(broker: ScriptedBroker, log: logging.Logger) -> None:
    handler = attach(log, broker, encoder=json_record)
    try:
        raise ValueError("no \ud800 price")
    except ValueError:
        log.exception("cannot %s", "sell")
    handler.flush()
    (found,) = map(json.loads, shipped(broker))
    assert (found["level"], found["logger"], found["message"]) == (
        "ERROR",
        "shop.cart",
        "cannot sell",
    )
    assert "ValueError" in found["exception"]


def test_a_broker_that_is_away_costs_the_application_nothing_but_counted_records(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedBroker() as gone:
        address = brokers(gone)
    handler = ShippingHandler(
        "app", broker_list=address, queue_records=10, close_timeout_ms=50, connect_timeout_ms=10
    )
    log.addHandler(handler)
    for number in range(25):
        log.error("item %d", number)
    assert handler.dropped == 15
    handler.close()
    assert handler.dropped == 25
    assert "25 log records for app were dropped" in capsys.readouterr().err
    log.error("after the end")
    assert handler.dropped == 26


def test_records_wait_for_a_broker_that_comes_back(
    broker: ScriptedBroker, log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka2011.producer.log_handler.RETRY_FIRST_S", 0.01)
    broker.refused.add("app")
    handler = attach(log, broker)
    log.warning("one")
    wait_until(lambda: handler.repeated, "a first attempt to fail")
    broker.refused.clear()
    log.warning("two")
    handler.flush()
    assert shipped(broker) == [b"one", b"two"]


def test_what_the_clients_log_is_not_shipped(broker: ScriptedBroker) -> None:
    handler = ShippingHandler("app", broker_list=brokers(broker))
    for name in (
        "kafka2011.producer.connection",
        "kazoo.client",
        "kafka2011.coordination.zookeeper",
    ):
        handler.handle(logging.LogRecord(name, 30, "", 1, "x", None, None))
    handler.handle(logging.LogRecord("producers", 30, "", 1, "mine", None, None))
    handler.close()
    assert shipped(broker) == [b"mine"]


def test_an_encoder_that_raises_is_loggings_affair(
    broker: ScriptedBroker, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    attach(log, broker, encoder=lambda record: bytes(record.args[0]))  # type: ignore[index]
    log.error("%s", "text")
    assert "Logging error" in capsys.readouterr().err


def test_a_record_above_the_limit_is_dropped_and_the_others_go(
    broker: ScriptedBroker, log: logging.Logger
) -> None:
    handler = attach(log, broker, max_message_bytes=100, compression_codec="1")
    log.error("x" * 101)
    log.error(os.urandom(50).hex())  # 100 bytes that gzip makes more of: never goes
    log.error("short")
    handler.flush()
    assert handler.dropped == 2
    assert handler.shipped == 1


def test_many_threads_lose_nothing(broker: ScriptedBroker, log: logging.Logger) -> None:
    handler = attach(log, broker)
    threads = [
        threading.Thread(target=lambda: [log.info("x") for _ in range(300)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.flush()
    assert len(shipped(broker)) == 1200


def test_a_forked_child_ships_its_own(broker: ScriptedBroker, log: logging.Logger) -> None:
    handler = attach(log, broker)
    log.warning("parent")
    handler.flush()
    child = os.fork()
    if not child:  # pragma: no cover
        try:
            log.warning("child")
            handler.flush()
        finally:
            os._exit(0 if handler.shipped == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert shipped(broker) == [b"parent", b"child"]


def test_it_can_be_named_in_a_logging_configuration(broker: ScriptedBroker) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {
                "ship": {
                    "class": "kafka2011.producer.log_handler.ShippingHandler",
                    "topic": "app",
                    "broker_list": brokers(broker),
                    "encoder": "ext://kafka2011.producer.log_handler.json_record",
                }
            },
            "loggers": {"configured": {"handlers": ["ship"], "level": "INFO"}},
        }
    )
    log = logging.getLogger("configured")
    log.info("hello")
    (handler,) = log.handlers
    handler.close()
    log.removeHandler(handler)
    assert json.loads(shipped(broker)[0])["message"] == "hello"


@pytest.mark.parametrize(
    "settings", [{}, {"broker_list": "nonsense"}, {"broker_list": "0:h:1", "queue_records": 0}]
)
def test_settings_that_cannot_be_used(settings: Any) -> None:
    with pytest.raises(ConfigError):
        ShippingHandler("app", **settings)
