"""Connections of the operators' commands: ZooKeeper, and the addresses of brokers. What fails is
one line and an exit status."""

import contextlib
from collections.abc import Callable, Iterator

from kafka2011.cli.output import fail
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.runtime.config import address, address_map

CONNECT_TIMEOUT_MS = 6000


@contextlib.contextmanager
def connected(zookeeper: str) -> Iterator[ZooKeeperRegistry]:
    """A started registry. Exits with status 2 for a bad address, 1 when ZooKeeper fails.

    A tool that only reads must not create a mistyped chroot, so one that is missing is an error.
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
    """A function from published address to the one to dial, by `--address-map`. Exits with status 2
    for a bad map."""
    try:
        mapped = address_map(text)
    except ValueError as error:
        fail(f"--address-map {text!r}: {error}", 2)
    return lambda published: mapped.get((published[0], published[1]), published)


def server_address(text: str) -> tuple[str, int]:
    """The address in `--server`: 0.7's `kafka://host:port` (any scheme), or `host:port`.

    Exits with status 2 for anything else.
    """
    try:
        return address(text.rpartition("://")[2].rstrip("/"))
    except ValueError:
        fail(f"--server {text!r} must be kafka://HOST:PORT", 2)
