"""The ZooKeeper of the integration tests."""

from tests.integration.conftest import zk_connect, zookeeper

__all__ = ["zk_connect", "zookeeper"]
