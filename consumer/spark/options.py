"""The options of the Spark data source, read once on the driver into one frozen value.

topic, topics       one name, or several with commas       (exactly one of these
topicsPattern       a pattern that must match whole names    three, or `ranges`)
zk.connect          where the brokers register, or
brokers             id:host:port,... with `partitions` on each (default 1)
startingOffsets     earliest, latest, or {"topic": {"11-0": 1234 or "earliest"}}; others: earliest
endingOffsets       as startingOffsets; others: latest
startingTimestamp   ms since the epoch; from the last segment written before it (coarse, as in 0.7)
endingTimestamp     ms since the epoch; up to the first segment written after it, so with all before
ranges              [["topic", 11, 0, start, end], ...]: exactly these bytes
split.bytes         cut ranges at segment starts into pieces of about this size
fetch.size, socket.timeout.ms, address.map                  as in consumer settings
failOnDataLoss      true (default): requested offsets that were retired are an error
columns             only these of the columns; `offset` alone counts fastest
decode              true, or the topic whose schema it is: the event's own fields as columns
event.forms, event.time.field, event.server.field, schema.registry.url      as in all settings
quarantine.dir      unreadable messages go to Parquet files there and are not rows
maxBytesPerTrigger, maxRowsPerTrigger                       streams: at most this much a batch
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kafka2011.consumer.ranges.planning import OffsetRange
from kafka2011.consumer.ranges.reading import FETCH_SIZE
from kafka2011.events.codec_source import CodecSource
from kafka2011.events.forms import FORMS_DEFAULT, parse_fields, parse_forms
from kafka2011.runtime.config import address, address_map, boolean, comma_list, path, whole

Address = tuple[str, int]

EARLIEST = "earliest"
LATEST = "latest"
# topic -> "broker-partition" -> an offset, EARLIEST or LATEST
Positions = dict[str, dict[str, int | str]]

_COUNT = whole(1, 2**62)
SHOWN_MAX = 200  # characters of an option in an error


class OptionError(ValueError):
    """An option cannot be used; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options; `topics` is empty and `pattern` None only with `ranges`."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    zk_connect: str = ""
    brokers: dict[int, Address] = field(default_factory=dict)
    partition_count: int = 1
    starting: str | Positions = EARLIEST
    ending: str | Positions = LATEST
    starting_time_ms: int | None = None
    ending_time_ms: int | None = None
    ranges: tuple[OffsetRange, ...] = ()
    split_bytes: int | None = None
    fetch_size: int = FETCH_SIZE
    socket_timeout_ms: int = 30_000
    address_map: dict[Address, Address] = field(default_factory=dict)
    fail_on_data_loss: bool = True
    bytes_max_per_trigger: int | None = None
    rows_max_per_trigger: int | None = None
    columns: tuple[str, ...] = ()
    decode: str = ""
    codec: CodecSource = field(default_factory=lambda: CodecSource(FORMS_DEFAULT))
    quarantine_dir: Path | None = None

    def selects(self, topic: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Read the options. Raises OptionError for what is missing, unknown, or cannot be read."""
    options = {name.lower(): text for name, text in given.items()}
    unknown = set(options) - set(_PARSERS) - {"topic", "path"}
    if unknown:
        raise OptionError(f"unknown option {sorted(unknown)[0]!r} of the source kafka2011")
    values: dict[str, Any] = {}
    for name, text in options.items():
        if name not in _PARSERS:
            continue
        target, parse = _PARSERS[name]
        try:
            values[target] = parse(text)
        except (ValueError, TypeError, KeyError, re.error, RecursionError) as error:
            raise OptionError(f"option {name}={text[:SHOWN_MAX]!r}: {error}") from None
    if "topic" in options:
        values["topics"] = (*values.get("topics", ()), options["topic"])
    forms, url = values.pop("forms", FORMS_DEFAULT), values.pop("registry_url", "")
    times, servers = values.pop("times", {}), values.pop("servers", {})
    try:
        forms = forms.with_fields(times, servers)
    except ValueError as error:
        raise OptionError(str(error)) from None
    found = SourceOptions(**values, codec=CodecSource(forms, url))
    if bool(found.topics) + bool(found.pattern) + bool(found.ranges) != 1:
        raise OptionError("give exactly one of topic (or topics), topicsPattern and ranges")
    if bool(found.zk_connect) == bool(found.brokers):
        raise OptionError("give exactly one of zk.connect and brokers")
    if found.pattern and not found.zk_connect:
        raise OptionError("topicsPattern needs zk.connect: brokers cannot list their topics")
    if found.starting_time_ms is not None and "startingoffsets" in options:
        raise OptionError("give startingOffsets or startingTimestamp, not both")
    if found.ending_time_ms is not None and "endingoffsets" in options:
        raise OptionError("give endingOffsets or endingTimestamp, not both")
    return _with_decoded_topic(found)


def _with_decoded_topic(found: SourceOptions) -> SourceOptions:
    """The options with `decode` as a topic's name; `true` means the topic that is read."""
    word = found.decode.strip().lower()
    if word in ("", "false"):
        return replace(found, decode="")
    if word != "true":
        return found
    topics = {*found.topics, *(part.topic for part in found.ranges)}
    if found.pattern is not None or len(topics) != 1:
        raise OptionError("decode=true needs one topic; decode=TOPIC says whose schema all have")
    return replace(found, decode=topics.pop())


def _brokers(text: str) -> dict[int, Address]:
    found = {}
    for part in comma_list(text):
        broker_id, colon, endpoint = part.partition(":")
        if not colon or not broker_id.isdecimal():
            raise ValueError(f"{part!r} must be id:host:port")
        found[int(broker_id)] = address(endpoint)
    return found


def _positions(text: str) -> str | Positions:
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return word
    given = json.loads(text)
    if not isinstance(given, dict):
        raise ValueError("must be earliest, latest or a JSON object")
    found: Positions = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic!r} must have an object of its partitions")
        found[topic] = {}
        for partition, position in partitions.items():
            if not re.fullmatch(r"\d+-\d+", partition):
                raise ValueError(f"{partition!r} must be broker-partition")
            if position not in (EARLIEST, LATEST) and (type(position) is not int or position < 0):
                raise ValueError(f"{position!r} must be an offset, earliest or latest")
            found[topic][partition] = position
    return found


def _ranges(text: str) -> tuple[OffsetRange, ...]:
    found = []
    for row in json.loads(text):
        topic, *numbers = row
        is_text = isinstance(topic, str)
        if not is_text or len(numbers) != 4 or any(type(number) is not int for number in numbers):
            raise ValueError("each must be [topic, broker id, partition, start, end]")
        found.append(OffsetRange(topic, *numbers))
        if not 0 <= found[-1].start <= found[-1].end:
            raise ValueError(f"{row} runs backwards")
    return tuple(found)


def _pattern(text: str) -> str:
    re.compile(text)
    return text


_PARSERS: dict[str, tuple[str, Any]] = {
    "topics": ("topics", comma_list),
    "topicspattern": ("pattern", _pattern),
    "zk.connect": ("zk_connect", str),
    "brokers": ("brokers", _brokers),
    "partitions": ("partition_count", whole(1, 100_000)),
    "startingoffsets": ("starting", _positions),
    "endingoffsets": ("ending", _positions),
    "startingtimestamp": ("starting_time_ms", whole(0)),
    "endingtimestamp": ("ending_time_ms", whole(0)),
    "ranges": ("ranges", _ranges),
    "split.bytes": ("split_bytes", _COUNT),
    "fetch.size": ("fetch_size", whole(1, 2**31 - 1)),
    "socket.timeout.ms": ("socket_timeout_ms", _COUNT),
    "address.map": ("address_map", address_map),
    "failondataloss": ("fail_on_data_loss", boolean),
    "maxbytespertrigger": ("bytes_max_per_trigger", _COUNT),
    "maxrowspertrigger": ("rows_max_per_trigger", _COUNT),
    "columns": ("columns", comma_list),
    "decode": ("decode", str),
    "quarantine.dir": ("quarantine_dir", path),
    "event.forms": ("forms", parse_forms),
    "event.time.field": ("times", parse_fields),
    "event.server.field": ("servers", parse_fields),
    "schema.registry.url": ("registry_url", str),
}
