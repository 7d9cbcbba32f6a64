"""What the operator's commands share: a connection to ZooKeeper, or one line and status 1; the
forms of addresses."""

import contextlib
from collections.abc import Callable, Iterator

from kafka2011.cli.output import fail
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.runtime.config import address, address_map

CONNECT_TIMEOUT_MS = 6000

ZOOKEEPER_HELP = "ZooKeeper, host:port,host:port/chroot"
SERVER_HELP = "the broker, kafka://host:port"
ADDRESS_MAP_HELP = "where to connect instead: published host:port=host:port,..."


@contextlib.contextmanager
def connected(zookeeper: str) -> Iterator[ZooKeeperRegistry]:
    """A started registry. Exits with status 2 for a bad address, 1 when ZooKeeper fails.

    A tool that looks must not leave a mistyped chroot behind, so there it is an error.
    """
    try:
        registry = ZooKeeperRegistry(zookeeper, makes_chroot=False)
    except ValueError as error:
        fail(str(error), 2)
    try:
        registry.start(CONNECT_TIMEOUT_MS)
        yield registry
    except CoordinationError as error:
        fail(str(error))
    finally:
        registry.close()


def dialler(text: str) -> Callable[[tuple[str, int]], tuple[str, int]]:
    """Where to connect for a published address, by an `--address-map`; status 2 for a bad one."""
    try:
        mapped = address_map(text)
    except ValueError as error:
        fail(f"--address-map {text!r}: {error}", 2)
    return lambda published: mapped.get((published[0], published[1]), published)


def server_address(text: str) -> tuple[str, int]:
    """The broker that `--server` names: 0.7's `kafka://host:port` (any scheme), or `host:port`.

    Exits with status 2 when it names none.
    """
    try:
        return address(text.rpartition("://")[2].rstrip("/"))
    except ValueError:
        fail(f"--server {text!r} must be kafka://HOST:PORT", 2)
