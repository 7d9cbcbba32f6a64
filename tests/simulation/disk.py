"""Disks that lose what was not flushed, in any order, and never what was."""

from dataclasses import dataclass, field

from kafka2011.broker.replication.effects import Journal
from kafka2011.broker.replication.plan import Action, Step
from kafka2011.protocol.lineage import Lineage, cut, pruned


class Entry:
    """A message of one byte, with everything before it: two logs that hold the same entry are
    the same up to there, so that prefixes are compared by one `is`."""

    __slots__ = ("before", "epoch", "number")

    def __init__(self, number: int, epoch: int, before: "Entry | None") -> None:
        self.number = number
        self.epoch = epoch
        self.before = before

    def __repr__(self) -> str:
        return f"{self.number}@{self.epoch}"


GONE = Entry(0, 0, None)  # what retention has removed, or a log that began anew has never had


@dataclass(slots=True)
class LogFile:
    """`entries` as the process sees them, those below `start` GONE; the first `durable` survive a
    power loss."""

    entries: list[Entry] = field(default_factory=list)
    durable: int = 0
    start: int = 0
    exists: bool = True
    quarantine: list[list[Entry]] = field(default_factory=list)

    def lose_power(self, kept: int) -> None:
        """Bits of `kept` say which cached entries stay; recovery cuts at the first lost one."""
        end = self.durable
        while end < len(self.entries) and kept & 1:
            end, kept = end + 1, kept >> 1
        del self.entries[end:]

    def begin_at(self, start: int) -> None:
        """Drop what is below `start`."""
        self.entries[:start] = [GONE] * start
        self.start = start
        self.durable = max(self.durable, start)


@dataclass(slots=True)
class Disk:
    """One data directory. Journal writes are carried out in order, each as a whole."""

    directory: str
    logs: dict[str, LogFile]
    accepted: int = 0
    starts: int = 0
    lineages: dict[str, Lineage] = field(default_factory=dict)
    whole: bool = True
    watermarks: dict[str, int] = field(default_factory=dict)  # the checkpoint; may be out of date
    journal: list[Journal] = field(default_factory=list)  # under way
    cuts: list[dict[str, Step]] = field(default_factory=list)  # under way
    removals: list[tuple[str, int]] = field(default_factory=list)  # under way: up to where
    is_suspect: bool = False  # a flush failed: the cache does not show what the disk has

    def write_journal(self) -> int:
        """Carry out the oldest write; returns its number."""
        entry = self.journal.pop(0)
        self.accepted = entry.accepted
        self.lineages = dict(entry.lineages)
        self.whole = entry.whole
        return entry.number

    def cut_some(self, count: int, kept: int) -> None:
        """The process dies in a cut: `count` logs are cut, and the next one in part: of what goes,
        its newest segments first, `kept` entries are left."""
        steps = [(n, step) for n, step in self.cuts[0].items() if step.action is not Action.KEEP]
        self._cut(dict(steps[:count]))
        for name, step in steps[count : count + 1]:
            log = self.logs[name]
            is_shorter = step.action is Action.CUT
            del log.entries[(step.offset if is_shorter else log.start) + kept :]
            if not (is_shorter or kept):
                log.entries.clear()  # no segment is left
                log.start = 0
            log.durable = len(log.entries)

    def cut_logs(self) -> None:
        self._cut(self.cuts.pop(0))

    def _cut(self, steps: dict[str, Step]) -> None:
        for name, step in steps.items():
            log = self.logs[name]
            log.exists = step.action is not Action.ASIDE
            if step.action is Action.KEEP:
                continue
            if step.action is Action.CUT:
                log.quarantine.append(log.entries[step.offset :])
                del log.entries[step.offset :]
            else:
                log.quarantine.append(log.entries[log.start :])
                log.entries.clear()
                log.begin_at(step.offset)
            log.durable = len(log.entries)

    def remove(self) -> None:
        """Carry out the oldest removal."""
        name, start = self.removals.pop(0)
        self.logs[name].begin_at(max(start, self.logs[name].start))

    def stop(self) -> None:
        """Drop what the process had asked for, as it is gone."""
        self.journal.clear()
        self.cuts.clear()
        self.removals.clear()

    def recover(self) -> None:
        """Do what recovery does: what is there is flushed, the lineages fit."""
        for name, log in self.logs.items():
            if not log.exists:
                self.lineages.pop(name, None)
                continue
            log.durable = len(log.entries)
            self.lineages[name] = pruned(
                cut(self.lineages.get(name, ()), log.durable), log.start, least=1
            )
            known = min(self.watermarks.get(name, 0), log.durable)
            self.watermarks[name] = max(known, log.start)
        self.is_suspect = False

    def copied(self) -> "Disk":
        """A backup of a directory whose process is stopped."""
        logs = {
            name: LogFile(
                list(log.entries), log.durable, log.start, log.exists, list(log.quarantine)
            )
            for name, log in self.logs.items()
        }
        return Disk(
            self.directory,
            logs,
            self.accepted,
            self.starts,
            dict(self.lineages),
            self.whole,
            dict(self.watermarks),
        )
