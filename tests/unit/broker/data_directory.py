"""A broker's data directory on a disk that fails on request, and what tests do with its logs."""

import random
from pathlib import Path
from typing import Any, TypeVar

from kafka2011.broker.log.log import Log
from kafka2011.broker.log.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.faulty_files import Fault, FaultyFileLayer
from tests.support.logs import abandon, manager

FIRST = "00000000000000000000.kafka"

Found = TypeVar("Found")


class DataDirectory:
    """At most one manager at a time has it open; the clock and the disk outlive each."""

    def __init__(self, parent: Path) -> None:
        self.root = parent / "logs"
        self.quarantine = parent / "logs-quarantine"
        self.clock: Any = ManualClock()
        self.files = FaultyFileLayer(parent)
        self._logs: LogManager | None = None

    def open(self, **options: Any) -> LogManager:
        """A manager that has loaded what is there; the one before it is stopped cleanly."""
        self.close()
        self._logs = manager(self.root, self.files, clock=self.clock, **options)
        return self._logs

    def log(self, **options: Any) -> Log:
        """Partition 0 of topic `t` in a manager opened with these options."""
        return self.open(**options).get_or_create("t", 0)

    @property
    def manager(self) -> LogManager:
        """The one that is open."""
        return some(self._logs)

    def close(self) -> bool:
        """Stop cleanly, if anything is open. Returns whether the stop was clean."""
        logs, self._logs = self._logs, None
        return logs is None or logs.close()

    def crash(self) -> None:
        """End the manager as SIGKILL would."""
        logs, self._logs = some(self._logs), None
        abandon(logs)

    def drop(self) -> None:
        """End the manager whatever its state: nothing is written any more."""
        if self._logs is not None:
            self._logs.unlock()
            self._logs = None
        self.files.close_all()

    def power_loss(self, rng: random.Random) -> None:
        """End the manager, and lose some of what no flush covered."""
        self.drop()
        self.files.power_loss(rng)

    def put(self, data: bytes, start: int = 0, partition: str = "t-0") -> Path:
        """A segment's file with these bytes, as an earlier process left it."""
        path = self.root / partition / f"{start:020d}.kafka"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def fail(
        self, error: int, *kinds: str, nth: int = 1, persistent: bool = False, within: str = ""
    ) -> None:
        """Let the `nth` operation of these kinds (default: any) on paths of which a name
        begins with `within` fail, or all from it on."""
        self.files.fault = Fault(nth, error, kinds, persistent, within)

    def operations(self) -> list[str]:
        """What was asked of the disk since the last call."""
        done, self.files.operations = self.files.operations, []
        return done

    def names(self, partition: str = "t-0") -> list[str]:
        return sorted(path.name for path in (self.root / partition).iterdir())

    def quarantined(self) -> list[bytes]:
        return sorted(one.read_bytes() for one in self.quarantine.rglob("*") if one.is_file())


def some(found: Found | None) -> Found:
    """`found`, which must not be None."""
    assert found is not None
    return found


def append(log: Log, message_set: bytes, count: int = 1, appender: Any = None) -> int:
    """Append and write, without a flush. Returns the log's end."""
    end = log.append(message_set, count, 0, appender)
    log.write_gathered()
    return end


def append_and_flush(log: Log, *message_sets: bytes) -> None:
    """Append each set as one message, with a flush after each."""
    for message_set in message_sets:
        log.append(message_set, 1, 0)
        log.flush()
