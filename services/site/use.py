"""What a use of the events is: a state machine that takes events and says what to show.

Uses are pure. Events come in any order of the partitions, each once; `now_ms` is the clock's time.
State is bounded, and is JSON between `state` and `restore`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from kafka2011.events.codec import Record

LATE_MS = 10_000


class Result(NamedTuple):
    """One event of a result topic. `key` names it within its topic and `time_ms`: an event that is
    made again has the same guid."""

    topic: str
    time_ms: int
    key: str
    fields: Record


class Use(ABC):
    """One use; it reads `topics` and writes to `result_topic`."""

    name: ClassVar[str]
    topics: ClassVar[tuple[str, ...]]
    result_topic: ClassVar[str]
    # Whether events of the last LATE_MS and more may still be missing: a comparison of topics, or
    # with a time, would then say what is not so. Set before `shown` and `results`.
    is_late: bool = False

    @abstractmethod
    def take(self, topic: str, event: Record, now_ms: int) -> None:
        """Take one event of one of the topics, with the fields of its shipped schema; its header's
        time is not later than `now_ms`."""

    @abstractmethod
    def shown(self, now_ms: int) -> Mapping[str, Any]:
        """What the page shows, as JSON."""

    @abstractmethod
    def results(self, now_ms: int) -> list[Result]:
        """What goes to the result topic at this time."""

    @abstractmethod
    def state(self) -> Mapping[str, Any]:
        """Everything that `restore` needs, as JSON."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` of an earlier run returned. Raises KeyError, TypeError and
        ValueError for anything else."""


def time_of(event: Record) -> int:
    """header.time, ms since the epoch: when the frontend made the event."""
    return int(event["header"]["time"])
