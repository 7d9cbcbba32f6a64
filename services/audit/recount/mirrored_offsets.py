"""How far a mirror had come, for a recount from files: its group's offsets in ZooKeeper.

Where ZooKeeper was stopped, too, one is started on a copy of its data directory, so that nothing in
it changes, and is gone afterwards.
"""

import shutil
import tempfile
from pathlib import Path

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.tools.group_offsets import stored_offsets
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.services.audit.recount.sources import Confirmed
from kafka2011.services.zookeeper.config import ZooKeeperConfig
from kafka2011.services.zookeeper.core import JarsMissing, JavaMissing
from kafka2011.services.zookeeper.server import NotServing, ZooKeeperServer


class OffsetsUnreadable(RuntimeError):
    """No such data, no offsets, or no Java to read them. The text is one line."""


def of_running(zk_connect: str, group: str) -> Confirmed:
    """The offsets that the group has now. Raises OffsetsUnreadable."""
    registry = ZooKeeperRegistry(zk_connect)
    try:
        registry.start()
        try:
            stored = stored_offsets(registry, group)
        finally:
            registry.close()
    except CoordinationError as error:
        raise OffsetsUnreadable(f"ZooKeeper at {zk_connect}: {error}") from error
    if not stored:
        raise OffsetsUnreadable(f"ZooKeeper at {zk_connect}: group {group} has no offsets")
    offsets = {found.name: found.offset for found in stored}
    return lambda topic, partition: offsets.get(TopicPartition(topic, *partition))


def of_stopped(data_dir: Path, group: str) -> Confirmed:
    """The offsets that the group had when the ZooKeeper with this `data.dir` ended.

    Raises OffsetsUnreadable.
    """
    if not (data_dir / "data").is_dir():
        raise OffsetsUnreadable(f"{data_dir} is no data directory of a ZooKeeper")
    try:
        with tempfile.TemporaryDirectory(prefix="kafka2011-audit-") as copy:
            shutil.copytree(data_dir / "data", Path(copy) / "data")
            config = ZooKeeperConfig(client_port=0, data_dir=Path(copy), log_level="ERROR")
            with ZooKeeperServer(config) as server:
                server.start()
                return of_running(f"{server.host}:{server.port}", group)
    except (JavaMissing, JarsMissing, NotServing, OSError) as error:
        raise OffsetsUnreadable(f"{data_dir}: {error}") from error
