"""What a log shares with its callers: its state, settings, appenders, observer."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from kafka2011.broker.log.errors import PartitionError
from kafka2011.broker.log.retention import RetentionPolicy


class LogState(Enum):
    ONLINE = "online"
    FAILED = "failed"  # a write or flush failed: readable up to the frozen watermark
    OFFLINE = "offline"  # recovery found damage, or being cut: neither readable nor writable


class Appender(Protocol):
    """The origin of what was appended at once; it is called with the log's topic when that was not
    kept."""

    def append_failed(self, topic: str, error: PartitionError) -> None: ...


class LogObserver(Protocol):
    """Follows a replica's logs. Called in the middle of a log's work: it must not call back."""

    def log_written(self, log: Any) -> None:
        """The written end has moved."""

    def log_flushed(self, log: Any) -> None:
        """The flushed end has moved."""

    def log_made(self, log: Any) -> None:
        """A log was made: what is appended is held until `open_for_appends`."""

    def log_failed(self, log: Any) -> None:
        """The log failed: nothing is known above its flushed end."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of one topic's logs. `flush_interval_messages` None means group commit."""

    segment_bytes_max: int
    roll_age_ms: int
    flush_interval_messages: int | None
    flush_interval_ms: int
    retention: RetentionPolicy
