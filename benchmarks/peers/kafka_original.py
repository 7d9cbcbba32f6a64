"""Kafka 0.7.2's own broker, where ORIGINAL_CLASSPATH names its classes (docs/testing.md).

Driven by our clients, as our broker is: what differs is the broker alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.common import Missing, find, free_port, running
from benchmarks.peers.kafka2011 import Broker
from tests.support.zookeeper import start_zookeeper

PROPERTIES = """\
brokerid=0
hostname=127.0.0.1
port={port}
log.dir={directory}/logs
num.partitions=1
enable.zookeeper=true
zk.connect={zk_connect}
log.flush.interval={flush_interval}
log.default.flush.interval.ms=1000
log.default.flush.scheduler.interval.ms=1000
"""


@contextmanager
def serve(directory: Path, flush_interval: int) -> Iterator[Broker]:
    """`flush_interval`, messages: 10,000 is what its server.properties says, 1 flushes each set."""
    class_path = os.environ.get("ORIGINAL_CLASSPATH", "")
    if not class_path:
        raise Missing("ORIGINAL_CLASSPATH does not say where Kafka 0.7.2's classes are")
    java = find("java", "default-jre-headless")
    port = free_port()
    settings = directory / "server.properties"
    with start_zookeeper(directory / "zookeeper") as server:
        zk_connect = f"{server.host}:{server.port}"
        text = PROPERTIES.format(
            port=port, directory=directory, flush_interval=flush_interval, zk_connect=zk_connect
        )
        settings.write_text(text, encoding="utf-8")
        command = [java, "-Xmx1g", "-server", "-cp", class_path, "kafka.Kafka", str(settings)]
        with running(command, port, directory) as process:
            log_dir = directory / "logs"
            yield Broker(process.pid, "127.0.0.1", port, log_dir, False, zk_connect)
