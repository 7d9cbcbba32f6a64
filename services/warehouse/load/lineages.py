"""What a load asks a broker: is what was loaded still in the log?

After an unclean election of a replica set, or the loss of another broker's disk, it may not be. An
offset beyond the new log's end is noticed anyway; but that log grows, and then the offset lies
within a message, or behind one that was never loaded. So the newest epochs that were read from
stand beside each offset and are compared with the log's; for a broker that is no set, which has
none, so do the last bytes that were read.
"""

from kafka2011.consumer.log_tail import is_another_log
from kafka2011.consumer.ranges.reading import RangeUnreadable
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.protocol.lineage import Lineage, OlderLeader, Parted, PartedTooEarly, parted
from kafka2011.services.warehouse.load.plan import (
    BEYOND_END,
    CUT,
    OLDER_LEADER,
    PlannedRange,
    Problem,
)
from kafka2011.services.warehouse.load.topic_tables import Topic
from kafka2011.services.warehouse.load_commits import Load, LoadedRange


def compared(
    topic: Topic, source: BrokerPartition, lineage: Lineage
) -> tuple[Parted | None, Problem | None]:
    """Where the log parts from what was loaded, and the problem to report; each may be None."""
    committed = topic.known.get(source)
    if committed is None:
        return None, None
    try:
        found = parted(topic.lineages.get(source, ()), committed, lineage)
    except OlderLeader as older:
        return None, Problem(topic.name, source, OLDER_LEADER, f"not loaded: {older}")
    except PartedTooEarly as error:
        detail = (
            f"loaded up to {committed}, but {error}; not loaded until it is reset "
            f"(kafka2011 load --reset {topic.name}/{source.text})"
        )
        return None, Problem(topic.name, source, BEYOND_END, detail)
    if found is None:
        return None, None
    return found, Problem(topic.name, source, CUT, f"{found.text}; its rows stay")


def go_back(
    topic: Topic, source: BrokerPartition, offset: int, lineage: Lineage, window_ms: int
) -> None:
    """Set the partition back, so that it is loaded again from `offset` on. Its rows stay; the
    commit records the range.

    Raises WarehouseError, DeltaError, OSError.
    """
    # The quarantine first: it takes no messages below its own offset.
    for table in (topic.quarantine, topic.table):
        known = None if table is None else table.next_offset(topic.name, source)
        if table is not None and known is not None and known > offset:
            part = LoadedRange(source, known, offset, offset, lineage)
            table.commit(Load(topic.name, [part], files=[], counts={}, window_ms=window_ms))
    topic.known[source] = offset
    topic.lineages[source] = lineage


def check_log(planned: PlannedRange, client: SimpleConsumer) -> None:
    """Raises RangeUnreadable when the log is another than the one that was planned for."""
    topic, partition = planned.topic, planned.source.partition
    if planned.tail is not None and is_another_log(client, topic, partition, planned.tail):
        raise RangeUnreadable(f"the log is not the one that was loaded up to {planned.committed}")
    if not planned.lineage:
        return
    lineage = client.lineage(planned.topic, planned.source.partition)
    try:
        found = parted(planned.lineage, planned.end, lineage)
    except (OlderLeader, PartedTooEarly) as error:
        raise RangeUnreadable(str(error)) from None
    if found is not None:
        raise RangeUnreadable(found.text)
