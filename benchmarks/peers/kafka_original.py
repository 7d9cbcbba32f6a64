"""Kafka 0.7.2's own broker, where ORIGINAL_CLASSPATH names its classes (docs/testing.md).

Driven by our clients, as our broker is: what differs is the broker alone. Its answer to the
question that ends `flush` says that it has appended what came before, not that it is on disk.
"""

import os
from pathlib import Path

from benchmarks.peers import kafka2011
from benchmarks.peers.common import Missing, Rates, find, free_port, running

DURABILITY = "fsync every {} messages or every second; appended, not yet durable, at its answer"
PROPERTIES = """\
brokerid=0
hostname=127.0.0.1
port={port}
log.dir={directory}/logs
num.partitions=1
enable.zookeeper=false
log.flush.interval={flush_interval}
log.default.flush.interval.ms=1000
log.default.flush.scheduler.interval.ms=1000
"""


def measure(directory: Path, flush_interval: int) -> Rates:
    """`flush_interval`, messages: 500 is the default, 10,000 what its server.properties says."""
    class_path = os.environ.get("ORIGINAL_CLASSPATH", "")
    if not class_path:
        raise Missing("ORIGINAL_CLASSPATH does not say where Kafka 0.7.2's classes are")
    java = find("java", "default-jre-headless")
    port = free_port()
    settings = directory / "server.properties"
    text = PROPERTIES.format(port=port, directory=directory, flush_interval=flush_interval)
    settings.write_text(text, encoding="utf-8")
    command = [java, "-Xmx1g", "-server", "-cp", class_path, "kafka.Kafka", str(settings)]
    with running(command, port, directory):
        return kafka2011.ask("127.0.0.1", port)
