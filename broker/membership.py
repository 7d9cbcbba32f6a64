"""Makes a broker's process a member of its replica set, and takes it out at the end.

Start, after the logs are loaded: find the set, take the replica port, register as live, count the
start; then the replica follows or leads. The client port opens when it leads.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka2011.broker.config import BrokerConfig
from kafka2011.broker.core.copies import CopyWaits
from kafka2011.broker.core.disk_scheduler import DiskScheduler
from kafka2011.broker.core.replica_storage import ReplicaStorage
from kafka2011.broker.log.errors import DataDirectoryError
from kafka2011.broker.network.server import BrokerServer
from kafka2011.broker.registration import DuplicateBrokerId, StoppedWhileWaiting
from kafka2011.broker.replica.peer_calls import Dial
from kafka2011.broker.replica.replica import Identity, Limits, RunningReplica
from kafka2011.broker.replica.requests import RegistryRequests
from kafka2011.broker.replica.set_node import LiveReplica, Reading, SetNode, decode_live
from kafka2011.broker.replication.context import Timing
from kafka2011.broker.replication.machine import Replica
from kafka2011.broker.replication.placement import Location
from kafka2011.coordination import paths
from kafka2011.coordination.cluster import cluster_id
from kafka2011.coordination.errors import BadZnode, CoordinationError, NodeConflict
from kafka2011.coordination.paths import BrokerAddress
from kafka2011.coordination.registry import Registry
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import listening_on

_log: Any = get_logger(__name__)

STALE_POLL_S = 0.1


class Membership:
    """A process's part in its set: `start`, and `close` before the logs are closed."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        loop: Any,
        topics: Callable[[], list[str]],
        storage: ReplicaStorage,
        disk: DiskScheduler,
        server: BrokerServer,
        refuse_appends: Callable[[str], None],
        copies: CopyWaits,
        failed: Callable[[str, bool], None],
        pause: Callable[[float], bool | None],
    ) -> None:
        """`topics` returns those that clients may use. `refuse_appends`, `failed`: as in
        RunningReplica. `pause` waits that many seconds; true means to stop."""
        self._config = config
        self._loop = loop
        self._topics = topics
        self._storage = storage
        self._disk = disk
        self._server = server
        self._refuse_appends = refuse_appends
        self._copies = copies
        self._failed = failed
        self._pause = pause
        self._requests: RegistryRequests | None = None
        self._shown: tuple[int, bytes] = (0, b"")  # epoch and the address's value in it
        self.replica: RunningReplica | None = None

    def start(self, registry: Registry) -> None:
        """Join the set, over a connected `registry`.

        Raises:
          CannotListen: the replica port cannot be taken.
          DataDirectoryError: the start cannot be counted.
          DuplicateBrokerId: another process uses the directory.
          StoppedWhileWaiting: the process is to stop.
          CoordinationError: there is no such set or member, or ZooKeeper does not answer.
        """
        config = self._config
        assert config.replica_name is not None
        journal = self._storage.journal
        node = SetNode(registry, config.broker_id)
        self._check_member(node.read(), config.replica_name)
        self.replica = self._made(registry, config.replica_name)
        self._copies.leader = self.replica
        with listening_on(config.listen_address, config.replica_port, "replica.port"):
            self.replica.port.listen(config.listen_address, config.replica_port)
        address = BrokerAddress(config.published_host, self.replica.port.port)
        live = LiveReplica(config.replica_name, address, os.getpid())
        rack = config.replica_rack or config.published_host
        node.note_place(config.replica_name, Location(config.published_host, rack))
        self._go_live(node, journal.directory, live)
        self._count_start(node)
        context = self.replica.machine.context
        context.whole = self._storage.journal.whole
        self._requests = RegistryRequests(
            registry,
            node,
            live,
            journal.directory,
            address=self._address,
            seen=lambda reading: self._on_loop(self._seen, reading),
            answer=lambda answer: self._on_loop(self._answered, answer),
        )
        self._requests.start()
        self.replica.start(self._requests)
        _log.info(
            "replica_started",
            broker_id=config.broker_id,
            name=config.replica_name,
            directory=journal.directory,
            address=f"{address.host}:{address.port}",
            whole=context.whole,
        )

    def _made(self, registry: Registry, name: str) -> RunningReplica:
        """The replica as its journal left it, not started."""
        config, journal = self._config, self._storage.journal
        machine = Replica(
            name,
            journal.directory,
            self._storage.copies(),
            accepted=journal.accepted,
            whole=journal.whole,
            timing=Timing(
                lag_max_ms=config.replica_lag_max_ms,
                silence_ms=config.replica_silence_ms,
                gap_ms=config.replica_registration_gap_ms,
                session_ms=config.zk_session_timeout_ms,
            ),
        )
        identity = Identity(cluster_id(registry), config.broker_id, name, journal.directory)
        return RunningReplica(
            identity,
            machine,
            storage=self._storage,
            disk=self._disk,
            loop=self._loop,
            poller=self._server.poller,
            clients=self._server,
            entry_bytes_max=config.request_bytes_max,
            limits=Limits(config.replica_catchup_bytes_per_s, config.replica_unconfirmed_bytes_max),
            refuse_appends=self._refuse_appends,
            failed=self._failed,
            moved=self._copies.look,
        )

    @staticmethod
    def _check_member(reading: Reading, name: str) -> None:
        if reading.state.entered_for(name) is None:
            members = ", ".join(entered for entered, _ in reading.state.members)
            raise CoordinationError(f"replica.name={name} is not a member of the set: {members}")

    def _go_live(self, node: SetNode, directory: str, live: LiveReplica) -> None:
        """Create the live node. One that exists is our last run's, and goes with its session, or is
        that of a process on a copy of this directory: the two would pass for one."""
        deadline = time.monotonic() + 2 * self._config.zk_session_timeout_ms / 1000 + 2
        while True:
            try:
                node.go_live(directory, live)
                return
            except NodeConflict as conflict:
                if self._is_dead(conflict.found, live):
                    node.forget_live(directory, conflict.found)
                    continue
                if time.monotonic() > deadline:
                    raise DuplicateBrokerId(
                        f"another process has the directory {directory} of replica "
                        f"{live.name}: {conflict.found!r}"
                    ) from None
            if self._pause(STALE_POLL_S):
                raise StoppedWhileWaiting

    def _count_start(self, node: SetNode) -> None:
        """Count this start, once no other process uses the directory: a copy of it that is started
        and refused must not make this one the older."""
        config, directory = self._config, self._storage.journal.directory
        starts = self._storage.journal.starts
        try:
            is_newest = self._storage.count_start(node.starts_of(directory))
        except OSError as error:
            raise DataDirectoryError(
                f"log.dir {config.log_dir} cannot be used: {error.strerror}"
            ) from error
        if not is_newest:
            _log.error("replica_is_older_copy", log_dir=str(config.log_dir), starts=starts)
        node.note_starts(directory, self._storage.journal.starts)

    @staticmethod
    def _is_dead(found: bytes | None, live: LiveReplica) -> bool:
        """Whether that node's process has ended: its port is ours now, or is closed."""
        try:
            address = decode_live(found).address
        except BadZnode:
            return False
        if address == live.address:
            return True
        dial = Dial(address)
        dial.run()
        if dial.socket is not None:
            dial.socket.close()
        return dial.is_refused

    # --- while it takes part -------------------------------------------------------------------

    def _on_loop(self, call: Callable[[Any], None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, argument)
        except RuntimeError:
            pass  # the loop has ended

    def _seen(self, reading: Reading) -> None:
        assert self.replica is not None
        self.replica.seen({directory: live.address for directory, live in reading.live.items()})

    def _answered(self, answer: Any) -> None:
        assert self.replica is not None
        self.replica.feed(answer)

    def _leading_in(self) -> int | None:
        """The epoch in which this replica leads, if it does."""
        leader = self.replica.machine.leads if self.replica is not None else None
        return leader.epoch if leader is not None else None

    def _address(self) -> tuple[bytes, Mapping[str, int]]:
        """The address's value and the topics to show clients; the value is fixed for an epoch."""
        epoch = self._leading_in() or 0
        if self._shown[0] != epoch:
            host = self._config.published_host
            self._shown = epoch, paths.encode_broker(host, self._server.port, now_ms())
        counts = {topic: self._config.partition_count(topic) for topic in self._topics()}
        return self._shown[1], counts

    def topic_seen(self, topic: str) -> None:
        """A topic got its first log: show it soon, while this replica leads."""
        if self._requests is not None and self._leading_in() is not None:
            self._requests.show_topics(
                self._version_shown, {topic: self._config.partition_count(topic)}
            )

    def _version_shown(self) -> int | None:
        assert self.replica is not None
        return self.replica.machine.context.version if self._leading_in() is not None else None

    @property
    def is_registered(self) -> bool:
        """Whether clients are shown this replica's address; true also while it follows."""
        leader = self.replica.machine.leads if self.replica is not None else None
        return leader is None or leader.is_shown

    def gauges(self) -> dict[str, float]:
        if self.replica is None:
            return {}
        machine = self.replica.machine
        context, state = machine.context, machine.context.state
        return {
            "replica_leads": float(machine.leads is not None),
            "replica_epoch": context.accepted,
            "replica_whole": float(context.whole and not context.failed),
            "replica_in_sync": len(state.isr) if state else 0,
            "replica_members": len(state.members) if state else 0,
            "replica_min_insync": state.min_insync if state else 0,
            # Also while this replica has taken notice of no state: an older one was put back.
            "replica_leaderless": float(state is None or state.leader not in context.live),
            "replica_unconfirmed_bytes": sum(
                copy.written - copy.watermark for copy in list(context.copies.values())
            ),
        }

    # --- end -----------------------------------------------------------------------------------

    def hand_over(self, done: Callable[[], None]) -> None:
        """Before a planned stop: let another replica lead, if one can; then call `done`."""
        if self.replica is None:
            done()
        else:
            self.replica.hand_over(done)

    def leave(self) -> None:
        """Leave the set; the live node goes with the registry's session. Idempotent."""
        if self.replica is not None:
            self.replica.close()

    def close(self) -> None:
        self.leave()
        if self._requests is not None:
            self._requests.close()
        self._storage.close()
