"""A broker inside the test's process, on a thread, under either event loop and any file layer.

For tests that must reach into it: a failing disk, a sendfile that sends what it likes. Everything
else starts a real process (`tests.support.brokers`).
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.process import Broker
from tests.support.brokers import RawClient
from tests.support.logs import broker_config
from tests.support.waiting import DEADLINE_S

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@dataclass
class InProcessBroker:
    """What a test sees of it."""

    broker: Broker
    log_dir: Path

    @property
    def port(self) -> int:
        return self.broker.server.port

    @property
    def metrics(self) -> Any:
        return self.broker.metrics

    def connect(self) -> RawClient:
        return RawClient("127.0.0.1", self.port)


@contextlib.contextmanager
def in_process_broker(
    tmp_path: Path, loop: str = "uvloop", files: FileLayer | None = None, **properties: object
) -> Iterator[InProcessBroker]:
    log_dir = tmp_path / "logs"
    stop = threading.Event()
    config = broker_config(log_dir, port=0, **properties)
    broker = Broker(config, LOOPS[loop](), files or FileLayer(), stop)
    broker.start()
    thread = threading.Thread(target=broker.serve)
    thread.start()
    try:
        yield InProcessBroker(broker, log_dir)
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        broker.close()
        assert not thread.is_alive()
