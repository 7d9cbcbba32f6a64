"""What holds after every step. The numbers are those of docs/replication.md.

The judge sees what the machines cannot: all disks at once, and what was ever confirmed.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka2011.protocol.lineage import epoch_at
from tests.simulation.disk import GONE, Entry

if TYPE_CHECKING:
    from tests.simulation.hosts import Host
    from tests.simulation.world import World


class Violation(Exception):
    """An invariant does not hold; the first line names it."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Judge:
    def __init__(self, partitions: tuple[str, ...]) -> None:
        self.confirmed: dict[str, list[Entry]] = {name: [] for name in partitions}
        self.start = dict.fromkeys(partitions, 0)  # the highest that a leader's log was given
        self._led: dict[int, tuple[str, int, str]] = {}  # epoch -> host, run, directory
        self._watermarks: dict[tuple[int, str], int] = {}  # epoch, partition

    # --- as it happens -------------------------------------------------------------------------

    def confirm(self, host: "Host", epoch: int, partition: str, watermark: int) -> None:
        """Judge a confirmation: I2, I3, I5."""
        identity = (host.name, host.run, host.disk.directory)
        if self._led.setdefault(epoch, identity) != identity:
            raise Violation("I3", f"{identity} and {self._led[epoch]} confirm in epoch {epoch}")
        log = host.disk.logs[partition]
        before = self._watermarks.get((epoch, partition), 0)
        if not before <= watermark <= log.durable:
            raise Violation("I5", f"{host.name} {partition}: {before} to {watermark}, {log}")
        self._watermarks[epoch, partition] = watermark
        confirmed = self.confirmed[partition]
        known = min(len(confirmed), watermark)
        if known > log.start and log.entries[known - 1] is not confirmed[known - 1]:
            raise Violation("I2", f"{host.name} {partition}: {log.entries}, not {confirmed}")
        confirmed += log.entries[len(confirmed) : watermark]

    def answered(self, ends: dict[str, Entry | None], asked: dict[str, int]) -> None:
        """I7: what a barrier has answered is confirmed, at the offsets that the client has."""
        for name, entry in ends.items():
            end, confirmed = asked[name], self.confirmed[name]
            if end and (len(confirmed) < end or entry not in (confirmed[end - 1], GONE)):
                raise Violation("I7", f"a barrier over {name} up to {end}, confirmed {confirmed}")

    def appended(
        self, hosts: Mapping[str, "Host"], host: "Host", partition: str, first: int
    ) -> None:
        """I4: within an epoch two logs are never different at an offset."""
        entries = host.disk.logs[partition].entries
        for offset in range(first, len(entries)):
            entry = entries[offset]
            for other in hosts.values():
                theirs = other.disk.logs[partition].entries
                if offset < len(theirs):
                    same = theirs[offset]
                    if same is not entry and same.epoch == entry.epoch:
                        raise Violation("I4", f"{host.name} {entries}, {other.name} {theirs}")

    def retired(self, host: "Host", partition: str, start: int) -> None:
        """I11: what is removed was confirmed."""
        if start > len(self.confirmed[partition]):
            raise Violation("I11", f"{host.name} {partition} begins at {start}: {self.confirmed}")
        self.start[partition] = max(self.start[partition], start)

    def sent(self, sender: "Host", partition: str, offset: int) -> None:
        """I11: what is still to be sent is not removed."""
        machine = sender.machine
        copy = machine.context.copies.get(partition) if machine is not None else None
        if copy is not None and copy.start > offset:
            raise Violation("I11", f"{sender.name} {partition}: what is sent from {offset} is gone")

    def written_down(self, host: "Host") -> None:
        """I8: the lineage on the disk never speaks of bytes that another epoch wrote."""
        disk = host.disk
        for name, log in disk.logs.items():
            lineage = disk.lineages.get(name, ())
            for offset in range(log.start, log.durable):
                if epoch_at(lineage, offset) != log.entries[offset].epoch:
                    raise Violation("I8", f"{host.name} {name}: {lineage} of {log.entries}")

    # --- after every step ----------------------------------------------------------------------

    def check(self, world: "World") -> None:
        """Judge the whole world: I1, I9."""
        candidates = world.registry.state.candidates
        intact = 0
        for host in world.hosts.values():
            disk, machine = host.disk, host.machine
            if disk.directory in candidates and world.is_whole(disk):
                intact += 1
                for name, confirmed in self.confirmed.items():
                    end, log = len(confirmed), disk.logs[name]
                    if log.start > self.start[name]:
                        raise Violation("I1", f"{host.name} {name} begins at {log.start}")
                    if end and (
                        log.durable < end
                        or (end > log.start and log.entries[end - 1] is not confirmed[-1])
                    ):
                        raise Violation("I1", f"{host.name} {name}: {log}, confirmed {confirmed}")
            if machine is not None:
                for name, copy in machine.context.copies.items():
                    end, log = copy.watermark, disk.logs[name]
                    if end > log.durable or (
                        end > log.start
                        and log.entries[end - 1] is not self.confirmed[name][end - 1]
                    ):
                        raise Violation("I9", f"{host.name} {name} to {end}: {log}")
        if not intact:
            raise Violation("I1", f"no directory of {sorted(candidates)} is left")
