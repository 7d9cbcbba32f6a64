"""Why a request to the partitions is refused. Each kind names its metric's label; a protocol turns
them into its own error codes, or closes the connection."""

from kafka2011.broker.log.errors import (
    LimitReached,
    OffsetOutOfRange,
    PartitionError,
    PartitionOffline,
    StorageFailed,
    StorageFull,
)

__all__ = [
    "CannotCreateLog",
    "CannotRead",
    "IllegalTopic",
    "LimitReached",
    "NoSuchPartition",
    "OffsetOutOfRange",
    "PartitionError",
    "PartitionOffline",
    "StorageFailed",
    "StorageFull",
    "TooManyWaits",
    "TooMuchUnconfirmed",
]


class IllegalTopic(PartitionError):
    """The name cannot be a topic on this broker."""

    reason = "illegal-topic"


class NoSuchPartition(PartitionError):
    """The topic has fewer partitions here, or the number is negative."""

    reason = "wrong-partition"


class TooMuchUnconfirmed(PartitionError):
    """Too few replicas are in sync, and as much is written already as may wait for them."""

    reason = "unconfirmed"


class CannotCreateLog(PartitionError):
    """The partition's directory or first segment cannot be made; nothing was appended."""

    reason = "cannot-create-log"


class CannotRead(PartitionError):
    """The segment's file cannot be opened. Another partition, or the same later, may be read."""

    reason = "cannot-read"


class TooManyWaits(PartitionError):
    """As many waits for data are under way as the broker holds: answer now, with what there is."""

    reason = "too-many-waits"
