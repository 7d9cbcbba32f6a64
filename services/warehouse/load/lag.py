"""How much is not loaded: the ends of the logs less how far each partition is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.services.warehouse.load.source_offsets import TopicSource


@dataclass(slots=True)
class Lag:
    """What was not loaded at `looked_ms`, when the brokers were asked where their logs end."""

    bytes: dict[str, int] = field(default_factory=dict)  # by topic, known or not
    # Topics whose tables could not be opened, or with a partition that cannot be loaded or whose
    # end no broker says.
    unknown: set[str] = field(default_factory=set)
    looked_ms: int = 0

    @property
    def total(self) -> int | None:
        return None if self.unknown else sum(self.bytes.values())


def unread(
    sources: Mapping[str, Sequence[BrokerPartition]],
    ends: Mapping[TopicSource, int | None],
    loaded: Mapping[str, Mapping[BrokerPartition, int]],
    looked_ms: int,
) -> Lag:
    """The lag by these ends. A partition without an end, or that was not planned yet, or whose log
    has become shorter, is for the next load to judge: what is left of its topic is unknown."""
    lag = Lag(looked_ms=looked_ms)
    for topic, partitions in sources.items():
        lag.bytes[topic] = 0
        for source in partitions:
            end = ends.get((topic, source))
            position = loaded.get(topic, {}).get(source, 0 if end == 0 else None)
            if end is None or position is None or end < position:
                lag.unknown.add(topic)
                break
            lag.bytes[topic] += end - position
    return lag
