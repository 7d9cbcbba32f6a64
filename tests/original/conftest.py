"""One ZooKeeper for the run, and the original's programs."""

from tests.integration.conftest import zk_connect, zookeeper
from tests.original.jvm import jvm

__all__ = ["jvm", "zk_connect", "zookeeper"]
