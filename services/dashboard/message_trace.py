"""The way of one message for the message browser's button; `services.trace` finds it.

Only a place is asked for, so that a request costs the search for copies and no more.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka2011.coordination.cluster import BrokerAddress, BrokerPartition
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.paths import decode_broker_partition
from kafka2011.coordination.registry import Registry
from kafka2011.services.dashboard.config import LIVE, OFFLINE, DashboardConfig
from kafka2011.services.trace.search import Logs
from kafka2011.services.trace.tracing import NotFound, Question, Tracer

TRACE_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class MessagePlace:
    """A message as the page names it: its datacenter, topic, partition and offset, and its number
    in a compressed set."""

    datacenter: str
    topic: str
    source: BrokerPartition
    offset: int
    number: int = 0


def place_from(query: Mapping[str, str]) -> MessagePlace:
    """The place that a request names. Raises ValueError with one line."""
    offset, number = query.get("offset", ""), query.get("number", "0")
    if not all(text.isdecimal() and len(text) <= 18 for text in (offset, number)):
        raise ValueError("offset and number must be whole numbers")
    try:
        source = decode_broker_partition(query.get("partition", ""))
    except BadZnode:
        raise ValueError("partition must be BROKER-PARTITION") from None
    place = query.get("dc", LIVE), query.get("topic", ""), source
    return MessagePlace(*place, int(offset), int(number))


def trace_message(
    config: DashboardConfig, registries: Mapping[str, Registry | None], place: MessagePlace
) -> dict[str, Any] | None:
    """The trace as JSON; None when the message is not there or its ZooKeeper does not answer.

    Raises KafkaError, CoordinationError.
    """

    def dial(address: BrokerAddress) -> tuple[str, int]:
        return config.address_map.get((address.host, address.port), (address.host, address.port))

    live_name = LIVE if place.datacenter == OFFLINE else place.datacenter
    with contextlib.ExitStack() as stack:

        def opened(name: str) -> Logs | None:
            registry = registries.get(name)
            if registry is None:
                return None
            return stack.enter_context(contextlib.closing(Logs(name, registry, dial)))

        tracer = Tracer(
            opened(live_name),
            opened(OFFLINE),
            config.warehouse_dir,
            config.forms,
            time_limit_s=TRACE_S_MAX,
        )
        tier = OFFLINE if place.datacenter == OFFLINE else LIVE
        question = Question(
            place.topic, source=place.source, offset=place.offset, tier=tier, number=place.number
        )
        try:
            return tracer.trace(question).as_json()
        except NotFound:
            return None
