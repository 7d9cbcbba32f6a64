"""`make demo REPLICAS=3`: in the middle a leader is killed, its disk deleted, and it comes back.

`step` decides from the set's present state what comes next; processes and ZooKeeper are behind
`Scene`.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kafka2011.coordination import paths
from kafka2011.coordination.cluster import live_brokers
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.registry import Registry
from kafka2011.services.embedded.supervisor import Supervisor

BROKER_ID = 1
AFTER_S = 5.0  # of sending
# The others notice a killed member when its session ends, at the latest, and the next leader then
# waits for 0.7's producers to notice; this is far above both.
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class SetNow:
    """The set's present state, by members' names. `leader`: that which clients are shown, or ""."""

    members: tuple[str, ...]
    in_sync: frozenset[str]
    leader: str

    @property
    def is_whole(self) -> bool:
        return bool(self.leader) and self.in_sync == frozenset(self.members)


class Scene(Protocol):
    def look(self) -> SetNow | None:
        """The set's state; None while it is not known."""

    def kill(self, member: str) -> None: ...

    def wipe(self, member: str) -> str:
        """Delete the member's disk; returns what to call that in a message."""

    def start(self, member: str) -> None: ...


class LostLeader:
    """Kills a leader and brings it back: call `step` a few times a second until `is_over`."""

    def __init__(
        self,
        scene: Scene,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_over = False
        self._scene = scene
        self._say = say
        self._clock = clock
        self._since_s = clock()
        self._lost = ""
        self._is_started = False

    def step(self) -> None:
        now = self._scene.look()
        if self.is_over or now is None:
            return
        waited_s = self._clock() - self._since_s
        if not self._lost:
            if now.is_whole and waited_s >= AFTER_S:
                self._kill(now)
        elif not self._is_started:
            if now.leader and now.leader != self._lost:
                self._say(
                    f"{now.leader} leads, {waited_s:.1f} s later; "
                    f"{self._lost} starts again, with an empty disk"
                )
                self._scene.start(self._lost)
                self._is_started, self._since_s = True, self._clock()
        elif now.is_whole:
            self._say(
                f"{self._lost} has copied everything and is in sync again, "
                f"{waited_s:.1f} s after its start"
            )
            self.is_over = True
        if not self.is_over and self._lost and waited_s > PATIENCE_S:
            in_sync = ", ".join(sorted(now.in_sync)) or "none"
            self._say(
                f"broker {BROKER_ID} is not whole again after {PATIENCE_S:.0f} s: "
                f"{now.leader or 'no replica'} leads, in sync: {in_sync}"
            )
            self.is_over = True

    def _kill(self, now: SetNow) -> None:
        self._lost, self._since_s = now.leader, self._clock()
        others = sorted(set(now.members) - {now.leader})
        self._say(
            f"broker {BROKER_ID} is {len(now.members)} replicas: {now.leader} leads, "
            f"{' and '.join(others)} {'has' if len(others) == 1 else 'have'} all that it has "
            "confirmed"
        )
        self._scene.kill(now.leader)
        place = self._scene.wipe(now.leader)
        self._say(f"{now.leader} is killed (SIGKILL) and its disk gone: {place} is deleted")


class SupervisedSet:
    """The `Scene` of a set whose members are the supervisor's processes."""

    def __init__(self, supervisor: Supervisor, registry: Registry) -> None:
        self._supervisor = supervisor
        self._registry = registry
        self._ports = {
            process.spec.ports["broker"]: name
            for name, process in supervisor.processes.items()
            if name.startswith(f"broker-{BROKER_ID}-")
        }

    def look(self) -> SetNow | None:
        return set_now(self._registry, self._ports)

    def kill(self, member: str) -> None:
        self._supervisor.processes[member].is_stop_asked = True
        self._supervisor.kill(member)

    def wipe(self, member: str) -> str:
        return self._supervisor.wipe(member)

    def start(self, member: str) -> None:
        self._supervisor.start_again(member)


def set_now(registry: Registry, ports: Mapping[int, str]) -> SetNow | None:
    """The set as ZooKeeper has it, None while that is not known. `ports`: port -> member's name."""
    try:
        stored = registry.get(paths.replica_state_path(BROKER_ID))
        shown = live_brokers(registry).get(BROKER_ID)
    except CoordinationError:
        return None
    if stored is None or stored.value is None:
        return None
    state = json.loads(stored.value)
    names = {member["directory"]: member["name"] for member in state["members"]}
    process = {name.rpartition("-")[2]: name for name in ports.values()}
    return SetNow(
        tuple(process[name] for name in names.values()),
        # An in-sync directory that is no member's any more has no name.
        frozenset(process[names[one]] if one in names else one for one in state["isr"]),
        ports.get(shown.port, "") if shown is not None else "",
    )
