"""The process registry: which processes a datacenter expects, and which are alive.

The persistent node says that a process is expected and stays when it dies; its ephemeral child says
that it is alive, and has its addresses. A process that stops cleanly writes so into the persistent
node: a missing ephemeral node could also mean an expired session. `status`, the dashboard and
Prometheus discovery read it.
"""

import json
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode, CoordinationError, NodeConflict
from kafka2011.coordination.registry import Handle, Registry, SessionEvent
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.workers import Worker

log = get_logger(__name__)

RETRY_S = 0.5  # between attempts while the node of an earlier run waits for its session to expire
TAKEN_ATTEMPTS = 60  # after which it is said: no session of an earlier run lives for so long
VALUE_SHOWN_MAX = 200  # bytes of another's node


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One process. Addresses are `host:port`, empty when it has none; `pid` is 0 when unknown.
    For an expected process that is not alive: `said_goodbye` if its last run ended with a clean
    stop, `has_finished` if all its work was done, too.
    """

    datacenter: str
    name: str
    kind: str
    address: str = ""
    metrics_address: str = ""
    pid: int = 0
    said_goodbye: bool = False
    has_finished: bool = False


class Registration:
    """Keeps one process's nodes; made by `register_process`."""

    def __init__(self, registry: Registry, record: ProcessRecord) -> None:
        self._registry = registry
        self._record = record
        self._closed = threading.Event()
        self._wanted = threading.Event()
        self._registered = threading.Event()
        self._has_node = False
        self._conflicts = 0  # in a row
        self._wanted.set()
        self._listener: Handle = registry.add_session_listener(self._on_session)
        self._worker = Worker(self._run, f"register-{record.name}", restarts=True)
        self._worker.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process is registered; False after `timeout_s`."""
        return self._registered.wait(timeout_s)

    def close(self, *, says_goodbye: bool = True, has_finished: bool = False) -> None:
        """Say goodbye in the persistent node, unless the process ends by a failure or another one
        has its name, and delete the `alive` node. `has_finished`: all its work is done.
        Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._wanted.set()
        self._listener.cancel()
        self._worker.join()
        try:
            is_another = self._conflicts >= TAKEN_ATTEMPTS
            if self._has_node and says_goodbye and not is_another:
                self._put_node(said_goodbye=True, has_finished=has_finished)
            self._registry.delete_own(self._alive_path, self._alive_value)
        except CoordinationError as error:
            log.info("process_node_not_deleted", name=self._record.name, reason=str(error))

    @property
    def _path(self) -> str:
        return paths.process_path(self._record.datacenter, self._record.name)

    @property
    def _alive_path(self) -> str:
        return paths.process_alive_path(self._record.datacenter, self._record.name)

    @property
    def _alive_value(self) -> bytes:
        return json.dumps(
            {
                "address": self._record.address,
                "metrics": self._record.metrics_address,
                "pid": self._record.pid,
            }
        ).encode()

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._registered.clear()
        elif event is SessionEvent.RECREATED:
            self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                while not self._closed.is_set() and not self._register():
                    self._closed.wait(RETRY_S)
            except BaseException:
                self._wanted.set()  # for the next run
                raise
            if self._closed.is_set():
                return

    def _register(self) -> bool:
        record = self._record
        try:
            # Until the `alive` node is there the process has not been started, or was stopped: one
            # that is expected and says neither is taken to have died.
            if self._registry.get(self._path) is None:
                self._put_node(said_goodbye=True)
            self._registry.create_ephemeral(self._alive_path, self._alive_value)
            self._put_node(said_goodbye=False)
        except NodeConflict as conflict:
            # An earlier run's session, which expires; or another process with the same name.
            self._conflicts += 1
            if self._conflicts == TAKEN_ATTEMPTS:
                by = (conflict.found or b"")[:VALUE_SHOWN_MAX].decode(errors="backslashreplace")
                log.warning("process_name_taken", name=record.name, by=by)
            return False
        except CoordinationError as error:
            log.warning("process_not_registered", name=record.name, reason=str(error))
            return False
        self._conflicts = 0
        self._registered.set()
        return True

    def _put_node(self, *, said_goodbye: bool, has_finished: bool = False) -> None:
        record = self._record
        value: dict[str, object] = {"kind": record.kind}
        if said_goodbye:
            value["stopped"] = True
        if has_finished:
            value["finished"] = True
        self._registry.put(self._path, json.dumps(value).encode())
        self._has_node = True


def register_process(registry: Registry, record: ProcessRecord) -> Registration:
    """Register a process, now and after every lost session, from a thread.

    Returns at once: the node of a killed process stays until its session expires, and the restarted
    process must serve without waiting for that.
    """
    return Registration(registry, record)


def forget_others(registry: Registry, names: Collection[str]) -> list[str]:
    """Remove expected processes other than `names`, unless they are alive; returns the removed
    names."""
    living = {(record.datacenter, record.name) for record in alive(registry)}
    gone = [
        (record.datacenter, record.name)
        for record in expected(registry)
        if record.name not in names and (record.datacenter, record.name) not in living
    ]
    for datacenter, name in gone:
        forget_process(registry, datacenter, name)
    return [name for _, name in gone]


def forget_process(registry: Registry, datacenter: str, name: str) -> None:
    """Remove a process from the expected ones."""
    registry.delete_recursive(paths.process_path(datacenter, name))


def expected(registry: Registry, known: Iterable[ProcessRecord] = ()) -> list[ProcessRecord]:
    """The expected processes, alive or not, without addresses; sorted.

    Those in `known` are not read again.
    """
    records = {(record.datacenter, record.name): record for record in known}
    return [
        records.get((datacenter, name)) or read_record(registry, datacenter, name)
        for datacenter, name in _names(registry)
    ]


def alive(registry: Registry, known: Iterable[ProcessRecord] | None = None) -> list[ProcessRecord]:
    """The processes that are alive, with addresses; sorted.

    `known`: a recent result of `expected`, for callers that poll.
    """
    found = []
    processes = expected(registry) if known is None else list(known)
    nodes = [paths.process_alive_path(process.datacenter, process.name) for process in processes]
    for process, path, stored in zip(processes, nodes, registry.get_many(nodes), strict=True):
        if stored is None:
            continue
        try:
            values = _json_object(stored.value)
            pid = values.get("pid", 0)
            found.append(
                ProcessRecord(
                    process.datacenter,
                    process.name,
                    process.kind,
                    str(values.get("address", "")),
                    str(values.get("metrics", "")),
                    pid if isinstance(pid, int) else 0,
                )
            )
        except BadZnode as error:
            log.warning("znode_ignored", path=path, reason=str(error))
    return found


def look(
    registry: Registry, known: Iterable[ProcessRecord] = ()
) -> tuple[list[ProcessRecord], list[ProcessRecord]]:
    """The expected processes, as `expected`, and those of them that are alive, as `alive`.

    One that starts or stops meanwhile is alive or has said goodbye, not dead: a start takes the
    goodbye back once its node is there, and a stop says it before the node goes. Those in `known`
    are read again only where they are not alive.
    """
    records = expected(registry, known)
    living = alive(registry, records)
    alive_keys = {(record.datacenter, record.name) for record in living}

    def is_alive(record: ProcessRecord) -> bool:
        return (record.datacenter, record.name) in alive_keys

    records = [
        each if is_alive(each) else read_record(registry, each.datacenter, each.name)
        for each in records
    ]
    started = [each for each in records if not (is_alive(each) or each.said_goodbye)]
    return records, living + alive(registry, started)


def _names(registry: Registry) -> list[tuple[str, str]]:
    return [
        (datacenter, name)
        for datacenter in registry.children(paths.PROCESSES)
        for name in registry.children(paths.datacenter_path(datacenter))
    ]


def read_record(registry: Registry, datacenter: str, name: str) -> ProcessRecord:
    """An expected process, without addresses; its kind is "" when the node says none."""
    stored = registry.get(paths.process_path(datacenter, name))
    try:
        values = _json_object(stored.value) if stored else {}
    except BadZnode:
        values = {}
    return ProcessRecord(
        datacenter,
        name,
        str(values.get("kind", "")),
        said_goodbye=values.get("stopped") is True,
        has_finished=values.get("finished") is True,
    )


def _json_object(value: bytes | None) -> dict[str, object]:
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadZnode(f"not a JSON object: {(value or b'')[:64]!r}")
    return found
