"""Machines, and what goes on between them: processes, their disks, the ends of their links."""

from collections import deque
from dataclasses import dataclass, field

from kafka2011.broker.replication import effects as wanted
from kafka2011.broker.replication.frames import Frame, Mark
from kafka2011.broker.replication.machine import Replica
from tests.simulation.disk import Disk, Entry
from tests.simulation.registry import Request

PARTITIONS = ("t-0", "t-1")
FIRST = ("t-0",)  # what a new directory has


@dataclass(slots=True)
class End:
    """One end of a link: frames on their way to `host`, and what `host` calls the link."""

    host: str
    run: int
    number: int
    queue: deque[tuple[Frame, list[Entry]] | None] = field(default_factory=deque)  # None: the end
    is_open: bool = True
    other: "End | None" = None
    told: dict[str, int] = field(default_factory=dict)  # the watermarks of marks that were sent

    def moved(self, mark: Mark) -> Mark:
        """The mark with only the watermarks that moved since the last one, as links send it."""
        told = self.told
        moved = {name: at for name, at in mark.watermarks.items() if told.get(name) != at}
        told |= moved
        return Mark(mark.number, moved, mark.flush_age_ms)


@dataclass
class Host:
    """A machine: its disk, and the process on it while there is one."""

    name: str
    disk: Disk
    machine: Replica | None = None
    run: int = 0
    clock_ms: int = 0
    is_paused: bool = False
    is_slow: bool = False  # to ZooKeeper; used by random walks
    is_open: bool = False  # to clients
    is_full: bool = False  # its disk
    refused: list[str] = field(
        default_factory=list
    )  # logs whose writes found no room, not reported yet
    # Clients' messages that wait for a new segment: their partitions and epochs.
    taken: list[tuple[str, int]] = field(default_factory=list)
    is_draining: bool = False  # clients are paused, and Drained was not handed in yet
    must_watch: bool = False
    told_epoch: int = 0  # by a new leader
    opening: set[str] = field(default_factory=set)  # logs that may not be written to yet
    request: Request | None = None
    ends: dict[int, End] = field(default_factory=dict)
    dials: deque[wanted.Connect] = field(default_factory=deque)
    canvasses: deque[tuple[int, str]] = field(default_factory=deque)
    accepted_links: int = 0
    backup: Disk | None = None

    @property
    def runs(self) -> bool:
        return self.machine is not None and not self.is_paused
