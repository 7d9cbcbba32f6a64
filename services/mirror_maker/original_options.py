"""The original's way to configure a mirror: consumer files, a producer file. Pure.

Each consumer file is a source cluster, the producer file the target. Their properties become
those of `MirrorConfig`; names without a counterpart are returned for a warning.
"""

from collections.abc import Mapping

from kafka2011.runtime.config import ConfigError, settings_of
from kafka2011.services.mirror_maker.config import MirrorConfig

# Name in the file -> name here; every other setting of MirrorConfig keeps its name.
CONSUMER_NAMES = {
    "zk.connect": "source.zk.connect",
    "autocommit.interval.ms": "offset.commit.interval.ms",
}
PRODUCER_NAMES = {"zk.connect": "target.zk.connect"}
# Taken from the producer file; the consumer file's values of these names are about the source.
PRODUCER_KEPT = ("max.message.size", "decompressed.bytes.max", "address.map", "flush.method")


def translated(
    consumer: Mapping[str, str], producer: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """(settings of the mirror, names that have no effect here). Raises ConfigError."""
    if "broker.list" in producer and "zk.connect" not in producer:
        raise ConfigError(
            "--producer.config: the target is found through zk.connect, since each source "
            "partition keeps its target; broker.list does not say which partitions there are"
        )
    known = settings_of(MirrorConfig)
    found: dict[str, str] = {}
    without_effect = []
    for name, text in consumer.items():
        here = CONSUMER_NAMES.get(name, name)
        if here in known:
            found[here] = text
        else:
            without_effect.append(name)
    for name, text in producer.items():
        here = PRODUCER_NAMES.get(name, name)
        if here == "address.map" and here in found:
            found[here] += "," + text
        elif here in PRODUCER_NAMES.values() or here in PRODUCER_KEPT or here.startswith("mirror."):
            found[here] = text
        else:
            without_effect.append(name)
    return found, without_effect
