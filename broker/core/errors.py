"""Why a request to the partitions is refused. Each kind names its metric's label; a protocol turns
them into its own error codes, or closes the connection."""

from kafka2011.broker.log.errors import (
    LimitReached,
    OffsetNotInLog,
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
    "OffsetNotInLog",
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
    """Too few replicas are in sync, and no more may be written unconfirmed."""

    reason = "unconfirmed"


class CannotCreateLog(PartitionError):
    """The partition's directory or first segment cannot be made; nothing was appended."""

    reason = "cannot-create-log"


class CannotRead(PartitionError):
    """The segment's file cannot be opened. Other partitions, or this one later, may be readable."""

    reason = "cannot-read"


class TooManyWaits(PartitionError):
    """The broker can hold no more waits for data: answer now, with what there is."""

    reason = "too-many-waits"
