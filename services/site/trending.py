"""Trending: what is viewed and shared most in the last minutes, and what is viewed with it.

Co-views are counted among the items watched, those viewed most a moment ago: a member who views two
of them within a few minutes counts for the pair. A robot would make pairs of everything, so a
member with many views counts for none.

A stream job on Spark may count the pairs of all items, window by window (site-related): its last
window is shown beside these.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from kafka2011.events.codec import Record
from kafka2011.events.topics import ACCESS_LOG, PAGE_VIEW, SHARE, SITE_RELATED, SITE_TRENDING
from kafka2011.runtime.clock import has_passed
from kafka2011.services.site.sliding import SlidingCounts
from kafka2011.services.site.use import Result, Use, time_of

WINDOW_MS = 300_000
BUCKET_MS = 10_000
KEYS_MAX = 20_000  # in ten seconds
TOP = 10
WATCHED = 50
WATCH_EVERY_MS = 2_000
PAIRS_MAX = WATCHED * (WATCHED - 1)
ALSO = 3
RELATED = 10
MEMBERS_MAX = 20_000
RECENT_ITEMS = 5
RECENT_MS = 300_000
ROBOT_VIEWS = 60  # in RECENT_MS
# Ways to items, not items.
NOT_ITEMS = frozenset({"/", "/home", "/search"})
PAIR = "\n"


def item_of(path: str) -> str | None:
    """The item that a path shows: the path without its query; None for a way to items."""
    item = path.partition("?")[0]
    return None if item in NOT_ITEMS else item


class Trending(Use):
    name = "trending"
    topics = (PAGE_VIEW, SHARE, ACCESS_LOG, SITE_RELATED)
    result_topic = SITE_TRENDING

    def __init__(self) -> None:
        self._views = SlidingCounts(WINDOW_MS, BUCKET_MS, KEYS_MAX)
        self._shares = SlidingCounts(WINDOW_MS, BUCKET_MS, KEYS_MAX)
        self._pairs = SlidingCounts(WINDOW_MS, BUCKET_MS, PAIRS_MAX)
        self._watched: frozenset[str] = frozenset()
        self._watched_at_ms = 0
        # member -> [first view of the count, views, [time, item] of the last watched ones]
        self._members: OrderedDict[str, list[Any]] = OrderedDict()
        self._related: dict[str, Any] = {}  # the newest window of site-related

    def take(self, topic: str, event: Record, now_ms: int) -> None:
        if topic == SITE_RELATED:
            self._relate(event, now_ms)
            return
        item = item_of(event["path"])
        if item is None:
            return
        time_ms = time_of(event)
        if topic == SHARE:
            self._shares.add(item, time_ms, now_ms)
        elif self._views.add(item, time_ms, now_ms):
            if has_passed(WATCH_EVERY_MS, self._watched_at_ms, now_ms):
                self._watched_at_ms = now_ms
                self._watched = frozenset(key for key, _ in self._views.top(WATCHED, now_ms))
            viewer = event["host"] if topic == ACCESS_LOG else str(event["member_id"])
            self._pair(viewer, item, time_ms, now_ms)

    def _relate(self, event: Record, now_ms: int) -> None:
        end_ms = int(event["window_end"])
        if end_ms > now_ms:
            return  # not a window that is over; it would hide all that come
        if end_ms > self._related.get("to_ms", 0):
            times = {"from_ms": int(event["window_start"]), "to_ms": end_ms}
            self._related = {**times, "known_ms": time_of(event), "pairs": {}}
        if end_ms == self._related.get("to_ms") and 1 <= event["rank"] <= RELATED:
            pair = [event["item"], event["related"], event["members"]]
            self._related["pairs"][str(event["rank"])] = pair

    def _pair(self, viewer: str, item: str, time_ms: int, now_ms: int) -> None:
        """Count `item` with what the viewer viewed before, if all are watched."""
        member = self._members.pop(viewer, None)
        if member is None or time_ms - member[0] > RECENT_MS:
            member = [time_ms, 0, member[2] if member else []]
        self._members[viewer] = member
        if len(self._members) > MEMBERS_MAX:
            self._members.popitem(last=False)
        member[1] += 1
        if item not in self._watched:
            return
        recent = [seen for seen in member[2] if time_ms - seen[0] <= RECENT_MS and seen[1] != item]
        if member[1] <= ROBOT_VIEWS:
            for _, other in recent:
                self._pairs.add(PAIR.join(sorted((item, other))), time_ms, now_ms)
        member[2] = [*recent[1 - RECENT_ITEMS :], [time_ms, item]]

    def shown(self, now_ms: int) -> Mapping[str, Any]:
        """What the page shows; `also`: the items viewed most by the same members, with counts."""
        viewed = self._views.top(TOP, now_ms)
        also = self._also([item for item, _ in viewed], now_ms)
        return {
            "from_ms": self._views.start_ms(now_ms),
            "views": self._views.total(now_ms),
            "shares": self._shares.total(now_ms),
            "viewed": [
                {"item": item, "count": count, "also": also[item]} for item, count in viewed
            ],
            "shared": [
                {"item": item, "count": count} for item, count in self._shares.top(TOP, now_ms)
            ],
            "related": self._related,
            "is_exact": self._views.is_exact(now_ms) and self._shares.is_exact(now_ms),
        }

    def _also(self, items: list[str], now_ms: int) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[tuple[int, str]]] = {item: [] for item in items}
        for pair, count in self._pairs.counts(now_ms).items():
            one, _, other = pair.partition(PAIR)
            if one in found:
                found[one].append((-count, other))
            if other in found:
                found[other].append((-count, one))
        return {
            item: [{"item": other, "count": -count} for count, other in sorted(pairs)[:ALSO]]
            for item, pairs in found.items()
        }

    def results(self, now_ms: int) -> list[Result]:
        found = []
        for kind, counts in (("viewed", self._views), ("shared", self._shares)):
            for rank, (item, count) in enumerate(counts.top(TOP, now_ms), 1):
                fields = {
                    "window_start": counts.start_ms(now_ms),
                    "kind": kind,
                    "rank": rank,
                    "item": item,
                    "count": count,
                }
                found.append(Result(SITE_TRENDING, now_ms, f"{kind} {rank}", fields))
        return found

    def state(self) -> Mapping[str, Any]:
        return {
            "views": self._views.state(),
            "shares": self._shares.state(),
            "pairs": self._pairs.state(),
            "watched": sorted(self._watched),
            "members": list(self._members.items()),
            "related": self._related,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._views.restore(state["views"])
        self._shares.restore(state["shares"])
        self._pairs.restore(state["pairs"])
        self._watched = frozenset(state["watched"])
        self._members.update(state["members"])
        self._related = dict(state.get("related", {}))  # older checkpoints lack it
