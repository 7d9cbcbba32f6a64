import json
import logging
import logging.config
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka2011.producer.log_handler import ShippingHandler, json_record
from kafka2011.protocol.message_set import payloads
from kafka2011.runtime.config import ConfigError
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until
from tests.unit.producer.support import numbered, sent

MODULE = "kafka2011.producer.log_handler"
ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT  # looked at, and left for the wait


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    made = logging.Logger("shop.cart")  # not in the tree of loggers: no other test has it
    yield made
    for handler in made.handlers:
        handler.close()


def attach(log: logging.Logger, broker: ScriptedBroker, **settings: Any) -> ShippingHandler:
    handler = ShippingHandler("app", broker_list=broker.broker_list, **settings)
    log.addHandler(handler)
    return handler


def test_records_arrive_in_order_as_the_formatter_writes_them(server, log) -> None:
    handler = attach(log, server)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    for number in range(1200):
        log.warning("item %d", number)
    handler.flush()
    assert sent(server) == [b"WARNING shop.cart item " + number for number in numbered(1200)]
    assert {part.topic for part in server.parts()} == {"app"}
    assert (handler.shipped, handler.dropped) == (1200, 0)


def test_the_json_encoder_has_the_stack_trace(server, log) -> None:
    handler = attach(log, server, encoder=json_record)
    try:
        raise ValueError("no \ud800 price")
    except ValueError:
        log.exception("cannot %s", "sell")
    handler.flush()
    (found,) = map(json.loads, sent(server))
    expected = {"level": "ERROR", "logger": "shop.cart", "message": "cannot sell"}
    assert found.items() >= expected.items()
    assert "ValueError" in found["exception"]


def test_a_record_that_the_encoder_makes_no_bytes_of_costs_no_other(
    server, log, monkeypatch
) -> None:
    made = iter([b"one", "text", None, bytearray(b"two")])
    handler = attach(log, server, encoder=lambda _record: next(made))
    wrong: list[str] = []
    monkeypatch.setattr(handler, "handleError", lambda record: wrong.append(record.getMessage()))
    for number in range(4):
        log.warning("item %d", number)
    handler.flush()
    assert sent(server) == [b"one", b"two"]
    assert wrong == ["item 1", "item 2"]
    assert (handler.shipped, handler.dropped) == (2, 0)


def test_a_record_that_is_too_large_as_an_event_costs_no_other(server, log, tmp_path) -> None:
    handler = attach(
        log,
        server,
        encoder=lambda record: b"\xff" * 30_000 if record.args else b"small",
        max_message_bytes=100_000,
        audit_enable=True,
        audit_dir=tmp_path / "audit",
        event_forms="*:2011",
    )
    log.warning("one")
    log.warning("%d", 2)  # a byte that is not UTF-8 has four characters in an event
    log.warning("three")
    handler.flush()
    assert (handler.shipped, handler.dropped) == (2, 1)


def test_a_broker_that_is_away_costs_the_application_nothing_but_counted_records(
    gone, log, capsys
) -> None:
    handler = attach(log, gone, queue_records=10, close_timeout_ms=50, connect_timeout_ms=10)
    for number in range(25):
        log.error("item %d", number)
    assert handler.dropped == 15
    handler.close()
    assert handler.dropped == 25
    assert "25 log records for app were dropped" in capsys.readouterr().err
    log.error("after the end")
    assert handler.dropped == 26


def test_records_wait_for_a_broker_that_comes_back(server, log, monkeypatch) -> None:
    monkeypatch.setattr(f"{MODULE}.RETRY_FIRST_S", 0.01)
    server.refused.add("app")
    handler = attach(log, server)
    log.warning("one")
    wait_until(lambda: handler.repeated, "a first attempt to fail")
    server.refused.clear()
    log.warning("two")
    handler.flush()
    assert payloads(server.log("app", -1)) == [b"one", b"two"]


def test_what_the_clients_log_is_not_shipped(server, log) -> None:
    handler = attach(log, server)
    for name in (
        "kafka2011.producer.connection",
        "kazoo.client",
        "kafka2011.coordination.zookeeper",
        "producers",
    ):
        handler.handle(logging.LogRecord(name, 30, "", 1, name, None, None))
    handler.close()
    assert sent(server) == [b"producers"]


def test_an_encoder_that_raises_is_loggings_affair(server, log, capsys) -> None:
    attach(log, server, encoder=lambda record: bytes(record.args[0]))
    log.error("%s", "text")
    assert "Logging error" in capsys.readouterr().err


def test_a_record_above_the_limit_is_dropped_and_the_others_go(server, log) -> None:
    handler = attach(log, server, max_message_bytes=100, compression_codec="1")
    log.error("x" * 101)
    log.error(random.Random(2).randbytes(50).hex())  # 100 bytes that gzip makes more of
    log.error("short")
    handler.flush()
    assert (handler.dropped, handler.shipped) == (1, 2)


def test_many_threads_lose_nothing(server, log) -> None:
    handler = attach(log, server)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(log.info, ["x"] * 1200))
    handler.flush()
    assert len(sent(server)) == 1200


def test_a_forked_child_ships_its_own(server, log) -> None:
    handler = attach(log, server)
    log.warning("parent")
    handler.flush()
    child = os.fork()
    if not child:  # pragma: no cover
        try:
            log.warning("child")
            handler.flush()
        finally:
            os._exit(0 if handler.shipped == 2 else 1)
    try:
        wait_until(lambda: os.waitid(os.P_PID, child, ENDED), "the child's end")
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    assert status == 0
    assert sent(server) == [b"parent", b"child"]


def test_it_can_be_named_in_a_logging_configuration(server) -> None:
    ship = {
        "class": f"{MODULE}.ShippingHandler",
        "topic": "app",
        "broker_list": server.broker_list,
        "encoder": f"ext://{MODULE}.json_record",
    }
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "handlers": {"ship": ship},
            "loggers": {"configured": {"handlers": ["ship"], "level": "INFO"}},
        }
    )
    log = logging.getLogger("configured")
    log.info("hello")
    (handler,) = log.handlers
    handler.close()
    log.removeHandler(handler)
    assert json.loads(sent(server)[0])["message"] == "hello"


@pytest.mark.parametrize(
    "settings", [{}, {"broker_list": "nonsense"}, {"broker_list": "0:h:1", "queue_records": 0}]
)
def test_settings_that_cannot_be_used(settings) -> None:
    with pytest.raises(ConfigError):
        ShippingHandler("app", **settings)


def test_an_exception_that_is_not_foreseen_costs_its_batch_and_not_the_handler(
    server, log, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("kafka2011.runtime.workers.RESTART_FIRST_S", 0.001)
    real = f"{MODULE}.Producer"
    with monkeypatch.context() as broken:
        broken.setattr(real, lambda _config: 1 / 0)
        handler = attach(log, server)
        log.warning("lost")
        handler.flush()
        assert handler.dropped == 1
    log.warning("shipped")
    handler.flush()
    assert sent(server) == [b"shipped"]
    assert "1 log records for app were dropped: ZeroDivisionError" in capsys.readouterr().err
