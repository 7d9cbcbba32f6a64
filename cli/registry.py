"""What the operator's commands share: a connection to ZooKeeper, or one line and status 1."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from coordination.errors import CoordinationError
from coordination.zookeeper import ZooKeeperRegistry
from runtime.config import address_map

CONNECT_TIMEOUT_MS = 6000

ZOOKEEPER_HELP = "ZooKeeper, host:port,host:port/chroot"
ADDRESS_MAP_HELP = "where to connect instead: published host:port=host:port,..."


@contextlib.contextmanager
def connected(zookeeper: str) -> Iterator[ZooKeeperRegistry]:
    """A started registry. Exits with status 2 for a bad address, 1 when ZooKeeper fails."""
    try:
        registry = ZooKeeperRegistry(zookeeper)
    except ValueError as error:
        print(f"kafka2011: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    try:
        registry.start(CONNECT_TIMEOUT_MS)
        yield registry
    except CoordinationError as error:
        print(f"kafka2011: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    finally:
        registry.close()


def dialler(text: str) -> Callable[[tuple[str, int]], tuple[str, int]]:
    """Where to connect for a published address, by an `--address-map`; status 2 for a bad one."""
    try:
        mapped = address_map(text)
    except ValueError as error:
        print(f"kafka2011: --address-map {text!r}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    return lambda published: mapped.get((published[0], published[1]), published)
