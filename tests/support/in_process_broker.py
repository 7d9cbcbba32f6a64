"""A broker inside the test's process, on a thread, under either event loop and any file layer.

For tests that must reach into it: a failing disk, a sendfile that sends what it likes. Everything
else starts a real process (`tests.support.brokers`).
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.process import Broker
from kafka2011.runtime import config
from tests.support.brokers import RawClient

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class InProcessBroker:
    """What a test sees of it."""

    def __init__(self, broker: Broker, log_dir: Path) -> None:
        self.broker = broker
        self.log_dir = log_dir

    @property
    def port(self) -> int:
        return self.broker.server.port

    @property
    def metrics(self) -> Any:
        return self.broker.metrics

    def connect(self, timeout_s: float = 20) -> RawClient:
        return RawClient("127.0.0.1", self.port, timeout_s)


@contextlib.contextmanager
def in_process_broker(
    tmp_path: Path, loop: str = "uvloop", files: FileLayer | None = None, **properties: object
) -> Iterator[InProcessBroker]:
    settings = {
        "brokerid": 0,
        "port": 0,
        "log.dir": tmp_path / "logs",
        "enable.zookeeper": "false",
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    loaded, _ = config.load(
        BrokerConfig,
        overrides=[f"{name}={value}" for name, value in settings.items()],
        environment={},
    )
    stop = threading.Event()
    broker = Broker(loaded, LOOPS[loop](), files or FileLayer(), stop)
    broker.start()
    thread = threading.Thread(target=broker.serve)
    thread.start()
    try:
        yield InProcessBroker(broker, tmp_path / "logs")
    finally:
        stop.set()
        thread.join(30)
        broker.close()
        assert not thread.is_alive()
