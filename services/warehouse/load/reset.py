"""Resets a partition whose log was lost or replaced: the remedy for `plan.BEYOND_END`.

Only offsets are committed: the partition's next offset becomes the earliest of the present log. The
commit records a gap that goes backwards, from the end of what was loaded of the old log. What is
known of a replica set's epochs is forgotten with it.
"""

from deltalake.exceptions import DeltaError

from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import cluster
from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse.config import WarehouseConfig
from kafka2011.services.warehouse.delta_table import WarehouseError, WarehouseTable
from kafka2011.services.warehouse.load_commits import FORGOTTEN, Load, LoadedRange
from kafka2011.services.warehouse.table_paths import TablePlaces

log = get_logger(__name__)


def reset_partition(
    warehouse_dir: StoragePath, topic: str, source: BrokerPartition, earliest: int, window_ms: int
) -> int:
    """Have the next load of the partition read from `earliest`; returns the offset it replaces.

    Raises WarehouseError when the partition was never loaded, or another load commits it right now.
    """
    places = TablePlaces(warehouse_dir)
    table = WarehouseTable.open(places.rows(topic))
    committed = None if table is None else table.next_offset(topic, source)
    if table is None or committed is None:
        raise WarehouseError(f"{topic}/{source.text} was never loaded into {warehouse_dir}")
    # The epochs that were read from are those of the old log. Compared with them, the new one would
    # be refused again, unless it begins before them.
    lineage = FORGOTTEN if source in table.known_lineages(topic) else ()
    # The quarantine first: it takes no messages below its own offset.
    for each in (WarehouseTable.open(places.quarantine(topic)), table):
        known = None if each is None else each.next_offset(topic, source)
        if each is not None and known is not None:
            part = LoadedRange(source, known, earliest, earliest, lineage)
            each.commit(Load(topic, [part], files=[], counts={}, window_ms=window_ms))
    return committed


def run_reset(config: WarehouseConfig, topic: str, source: BrokerPartition) -> int:
    """Run `kafka2011 load --reset`; returns the exit status."""
    registry = ZooKeeperRegistry(config.zk_connect, config.zk_session_timeout_ms)
    try:
        registry.start(timeout_ms=config.zk_session_timeout_ms)
        address = cluster.live_brokers(registry).get(source.broker_id)
        if address is None:
            raise WarehouseError(f"broker {source.broker_id} is away")
        dialled = config.address_map.get(address, address)
        with SimpleConsumer(*dialled, socket_timeout_ms=config.socket_timeout_ms) as client:
            earliest = client.earliest(topic, source.partition)
        committed = reset_partition(
            config.warehouse_dir.resolve(), topic, source, earliest, config.window_ms
        )
    except (CoordinationError, KafkaError, WarehouseError, DeltaError, OSError) as error:
        log.error("reset_failed", partition=f"{topic}/{source.text}", reason=reason_of(error))
        return 1
    finally:
        registry.close()
    log.info(
        "reset",
        partition=f"{topic}/{source.text}",
        loaded_up_to=committed,
        goes_on_at=earliest,
    )
    return 0
