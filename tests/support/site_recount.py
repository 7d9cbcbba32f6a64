"""What a checkpoint of the site must contain: a recount of the segment files up to its offsets.

With counters alone and none of the site's code, so that it is independent of it.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka2011.events.topic_codec import TopicCodec
from kafka2011.protocol import message_set

BUCKET_MS = 10_000
HOUR_MS = 3_600_000
Checkpoint = dict[str, Any]


def checkpoint_of(directory: Path, use: str) -> Checkpoint:
    """The last checkpoint of a use."""
    text = (directory / use / "checkpoint.json").read_text(encoding="utf-8")
    found: Checkpoint = json.loads(text.partition("\n")[2])
    return found


def events_of(root: Path, checkpoint: Checkpoint, codec: TopicCodec) -> Iterator[tuple[str, Any]]:
    """(topic, event) of every message below the checkpoint's offsets, from the brokers' files."""
    for topic, broker, partition, end in checkpoint["positions"]:
        logs = root / f"broker-{broker}" / "logs" / f"{topic}-{partition}"
        for segment in sorted(logs.glob("*.kafka")):
            data = segment.read_bytes()
            whole = data[: message_set.split(memoryview(data))]
            for payload, behind in message_set.messages(whole, int(segment.stem)):
                if behind <= end:
                    yield topic, codec.decode(topic, payload)[1]


def differences(root: Path, codec: TopicCodec) -> list[str]:
    """Figures in which the checkpoints below `root`/site differ from a recount; empty: none."""
    found = []
    for use, check in (("trending", _trending), ("search", _search), ("ads", _ads)):
        checkpoint = checkpoint_of(root / "site", use)
        events = list(events_of(root, checkpoint, codec))
        state = checkpoint["state"]
        if state["events"] != len(events):
            found.append(f"{use}: {state['events']} events, {len(events)} in the files")
        found += [f"{use}: {text}" for text in check(state["use"], events)]
    return found


def _differ(name: str, buckets: list[Any], wanted: dict[int, Counter[str]]) -> list[str]:
    """Of counts by bucket; those that are over are not in the state any more."""
    had = {bucket: counts for bucket, _, counts in buckets}
    first = min(had, default=0)
    kept = {bucket: dict(counts) for bucket, counts in wanted.items() if bucket >= first}
    if had == kept:
        return []
    return [f"{name} {bucket}: {had.get(bucket)} and not {kept.get(bucket)}" for bucket in kept]


def _bucket(event: Any) -> int:
    return int(event["header"]["time"]) // BUCKET_MS * BUCKET_MS


def _trending(state: Any, events: list[tuple[str, Any]]) -> list[str]:
    wanted: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for topic, event in events:
        item = re.sub(r"\?.*", "", event["path"])
        if item not in ("/", "/home", "/search"):
            wanted["shares" if topic == "share" else "views"][_bucket(event)][item] += 1
    return [
        text for name in ("views", "shares") for text in _differ(name, state[name], wanted[name])
    ]


def _search(state: Any, events: list[tuple[str, Any]]) -> list[str]:
    wanted: dict[int, Counter[str]] = defaultdict(Counter)
    clicked: dict[int, Counter[str]] = defaultdict(Counter)
    for topic, event in events:
        if topic == "search":
            wanted[_bucket(event)][event["query"]] += 1
        elif topic == "click" and event["search"] is not None:
            clicked[_bucket(event)][event["query"]] += 1
    return _differ("searches", state["searches"], wanted) + _differ(
        "clicks", state["clicks"], clicked
    )


def _ads(state: Any, events: list[tuple[str, Any]]) -> list[str]:
    charged = set()
    wanted: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0, 0]))
    for topic, event in events:
        guid = event["header"]["guid"]
        if event["campaign"] is not None and guid not in charged:
            charged.add(guid)
            cell = wanted[event["campaign"]][event["header"]["time"] // HOUR_MS]
            cell[0 if topic == "impression" else 1] += 1
            cell[2] += event["price_micros"]
    had = {name: {hour: cell for hour, *cell in hours} for name, hours in state["hours"].items()}
    return [] if had == wanted else [f"{had} and not {dict(wanted)}"]
