"""Connections of the operators' commands: ZooKeeper, and the addresses of brokers. A failure is one
line and an exit status.

An address that is not given is that of the deployment that runs in the current directory.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kafka2011.cli.output import fail
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.consumer.tools.cluster_state import groups
from kafka2011.coordination.errors import CoordinationError, CoordinationUnavailable
from kafka2011.coordination.paths import OFFSET_MAX
from kafka2011.coordination.registry import Registry
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.protocol.errors import OffsetOutOfRange, WrongPartition
from kafka2011.protocol.requests import FetchRequest
from kafka2011.runtime.config import (
    ConfigError,
    address,
    address_map,
    environment_name,
    read_properties,
    suggestion,
)
from kafka2011.runtime.process_state import read_states
from kafka2011.runtime.storage_paths import StoragePath

if TYPE_CHECKING:
    from kafka2011.services.embedded.running import Running

CONNECT_TIMEOUT_MS = 6000
# How long ZooKeeper may take to answer when a command ends: a busy one needs this, or a consumer
# would not commit.
ANSWER_S = 2.0
DATACENTERS = ("live", "offline")
# How a deployment reads events, and counts them.
SCHEMAS = ("schema.registry.url", "event.forms", "event.time.field", "event.server.field")
EVENTS = (*SCHEMAS, "audit.window.ms")
PLACES = {"zk.connect", "warehouse.dir"}


def zookeeper_address(given: str, datacenter: str = "live", option: str = "--zookeeper") -> str:
    """The value of `option`: as given, or that of the running deployment's `datacenter`; `live`
    and `offline` name one. Exits with status 2 unless exactly one deployment runs here."""
    if given and given not in DATACENTERS:
        if ":" not in given and (meant := suggestion(given, DATACENTERS)):
            fail(f"{option} {given!r} must be HOST:PORT, live or offline{meant}", 2)
        return given
    wanted = given or datacenter
    found = _running()
    if len(found) == 1:
        return found[0].zookeeper[wanted]
    fail_without_one(option, lambda one: one.zookeeper[wanted])


def fail_without_one(
    option: str, value_of: "Callable[[Running], str]", form: str = "HOST:PORT"
) -> NoReturn:
    """Exit with status 2, since no deployment or several run in the current directory. The line
    names the option that chooses one, with each one's `value_of`, or with `form`."""
    if found := _running():
        there = [(value, one.directory) for one in found if (value := value_of(one))]
        choices = [f"{option} {value} for {place}" for value, place in there]
        fail(f"several deployments run here: give {' or '.join(choices or [option])}", 2)
    fail(f"no deployment runs in this directory: start one, or give {option} {form}", 2)


def found_zookeeper(datacenter: str = "live") -> str:
    """ZooKeeper of the deployment in the current directory; "" unless exactly one runs here."""
    return found_zookeepers().get(datacenter, "")


def found_zookeepers() -> dict[str, str]:
    """The ZooKeepers, by datacenter, of the deployment in the current directory; empty unless
    exactly one runs here."""
    found = _running()
    return dict(found[0].zookeeper) if len(found) == 1 else {}


def found_registry() -> str:
    """The schema registry's URL of the deployment that runs in the current directory."""
    found = _running()
    return found[0].registry if len(found) == 1 else ""


def is_set(name: str, words: Sequence[str], config_file: Path | None = None) -> bool:
    """Whether a setting is given by `words` (NAME=VALUE) or the environment, or may be, since there
    is a properties file."""
    return (
        config_file is not None
        or any(word.partition("=")[0] == name for word in words)
        or environment_name(name) in os.environ
    )


def refuse_places(words: Sequence[str], options: dict[str, str]) -> None:
    """Exit with status 2 when --set names a place that a command takes by an option alone.
    `options` maps the setting to its option."""
    for name, option in options.items():
        if any(word.partition("=")[0].strip() == name for word in words):
            fail(f"--set {name} has no effect here: give {option}", 2)


def event_settings_here(
    words: Sequence[str], config_file: Path | None = None, names: Sequence[str] = EVENTS
) -> list[str]:
    """How the events of the deployment that runs in the current directory are read and counted:
    those of the settings `names`, as NAME=VALUE, that it has and that are not given."""
    from kafka2011.services.embedded.running import recorded_settings

    root = found_directory()
    if root is None:
        return []
    ours = recorded_settings(root, "audit", names)
    return _not_given({"schema.registry.url": found_registry(), **ours}, words, config_file)


def load_settings_here(words: Sequence[str], file: Path | None = None) -> list[str]:
    """The settings of the loads of the deployment in the current directory, as NAME=VALUE: where
    their topics and tables are, and how they read. Without those that are given, and none where
    another place is."""
    from kafka2011.services.embedded.running import recorded_settings

    root = found_directory()
    if root is None:
        return []
    ours = recorded_settings(root, "loader", EVENTS)
    ours["zk.connect"] = found_zookeeper("offline")
    ours["warehouse.dir"] = str(tables_of(root))
    return _not_given(ours, words, file)


def tables_here(words: Sequence[str], file: Path | None = None) -> list[str]:
    """warehouse.dir and report.dir of the deployment in the current directory or in `var`, which
    need not run, as NAME=VALUE, unless given; neither where another warehouse is."""
    root = deployment_directory()
    ours = {"warehouse.dir": str(tables_of(root)), "report.dir": str(root / "reports")}
    return _not_given(ours, words, file)


def tables_of(root: Path) -> StoragePath:
    """The tables of the deployment whose data directory is `root`."""
    from kafka2011.services.embedded.running import recorded_tables

    return recorded_tables(root) or root / "warehouse"


def stream_settings_here(words: Sequence[str], file: Path | None = None) -> list[str]:
    """The settings of a stream job over the live brokers of the deployment in the current
    directory, as `load_settings_here`."""
    from kafka2011.services.embedded.running import recorded_settings

    root = found_directory()
    if root is None:
        return []
    ours = recorded_settings(root, "loader", SCHEMAS)
    return _not_given({**ours, "zk.connect": found_zookeeper()}, words, file)


def _not_given(ours: dict[str, str], words: Sequence[str], file: Path | None) -> list[str]:
    """Those of `ours` that neither `words` nor the environment nor the file has; none where one of
    PLACES is given, which may be another deployment's."""
    try:
        of_file = read_properties(file) if file is not None else {}
    except ConfigError:
        of_file = {}  # said when the settings are read
    given = {name for name in ours if name in of_file or is_set(name, words)}
    if given & PLACES:
        return []
    return [f"{name}={value}" for name, value in ours.items() if value and name not in given]


def found_directory() -> Path | None:
    """The data directory of the deployment that runs in the current directory."""
    found = _running()
    return found[0].directory if len(found) == 1 else None


def deployment_directory(given: Path | None = None) -> Path:
    """The value of --dir: as given, else that of the one deployment that runs in the current
    directory, else `var`."""
    return given or found_directory() or Path("var")


def _running() -> "list[Running]":
    from kafka2011.services.embedded.running import running_below

    return running_below(Path())


def _running_here(given: str) -> str:
    """A hint at the deployment in the current directory, for an error about another ZooKeeper."""
    there = found_zookeepers()
    if not given or not there or given in (*DATACENTERS, *there.values()):
        return ""
    known = ", ".join(f"{datacenter} {place}" for datacenter, place in there.items())
    return f"; the deployment here has {known}"


@contextlib.contextmanager
def connected(zookeeper: str, datacenter: str = "live") -> Iterator[ZooKeeperRegistry]:
    """A started registry, as `reached` gives it. Exits with status 1 when ZooKeeper fails."""
    try:
        with reached(zookeeper, datacenter) as registry:
            yield registry
    except CoordinationError as error:
        fail(str(error))


@contextlib.contextmanager
def reached(zookeeper: str, datacenter: str = "live") -> Iterator[ZooKeeperRegistry]:
    """A started registry at the `zookeeper_address` of the arguments. Exits with status 2 for a bad
    address; raises CoordinationUnavailable, with a line for the user, when ZooKeeper fails.

    A tool that only reads must not create a mistyped chroot, so one that is missing is an error.
    """
    try:
        registry = ZooKeeperRegistry(zookeeper_address(zookeeper, datacenter), makes_chroot=False)
    except ValueError as error:
        fail(str(error), 2)
    try:
        registry.start(CONNECT_TIMEOUT_MS)
        yield registry
    except CoordinationError as error:
        port = "" if ":" in zookeeper or zookeeper in ("", *DATACENTERS) else " (no port was given)"
        text = f"{error}{port}{_running_here(zookeeper)}"
        raise CoordinationUnavailable(text) from error
    finally:
        if registry.session_id() is not None and registry.answers_within(ANSWER_S):
            registry.close()
        else:  # no session, or ending it would wait for ZooKeeper
            registry.abandon()


def require_group(registry: Registry, name: str, advice: str = "") -> None:
    """Exit with status 1 when ZooKeeper has no such group; the line says which may be meant."""
    known = groups(registry)
    if name not in known:
        hint = suggestion(name, known) or "; `groups list` names those there are"
        fail(f"no group {name!r}{advice or hint}")


def dialler(text: str) -> Callable[[tuple[str, int]], tuple[str, int]]:
    """A function from a published address to the one to dial, by `--address-map`. Exits with status
    2 for a bad map."""
    try:
        mapped = address_map(text)
    except ValueError as error:
        fail(f"--address-map {text!r}: {error}", 2)
    return lambda published: mapped.get((published[0], published[1]), published)


def brokers_here(given: tuple[str, int]) -> str:
    """A hint at the brokers of the deployment in the current directory, when the broker at `given`
    does not answer; "" if it is one of them, or unless exactly one deployment runs here."""
    directory = found_directory()
    states = read_states(directory) if directory is not None else []
    ports = {one["name"]: port for one in states if (port := one.get("ports", {}).get("broker"))}
    if not ports or given[1] in ports.values():
        return ""
    known = ", ".join(f"{name} kafka://127.0.0.1:{port}" for name, port in ports.items())
    return f"; the deployment here has {known}"


def server_address(text: str) -> tuple[str, int]:
    """The address in `--server`: 0.7's `kafka://host:port` (any scheme), or `host:port`.

    Exits with status 2 for anything else.
    """
    try:
        return address(text.rpartition("://")[2].rstrip("/"))
    except ValueError:
        fail(f"--server {text!r} must be kafka://HOST:PORT", 2)


def no_log(client: SimpleConsumer, topic: str, partition: int) -> str:
    """A line for the user if the client's broker has no log of the partition, else "". Only one
    answer of 0.7 tells: a fetch beyond a log's end is out of range, and without a log it is empty.
    Raises KafkaError."""
    [answer] = client.multifetch([FetchRequest(topic, partition, OFFSET_MAX, 1)])
    if isinstance(answer.error, OffsetOutOfRange):
        return ""
    if answer.error is None or isinstance(answer.error, WrongPartition):
        return (
            f"nothing was ever sent to partition {partition} of topic {topic!r} on the "
            f"broker at {client.host}:{client.port} (topics describe: what there is)"
        )
    raise answer.error
