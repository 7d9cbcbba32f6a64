"""Search: what is looked for, which results are clicked, and how that depends on their position.

Impressions and clicks name the search that they belong to, so the order in which the topics are
read does not matter.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from kafka2011.events.codec import Record
from kafka2011.events.topics import CLICK, IMPRESSION, SEARCH, SITE_SEARCH
from kafka2011.services.site.sliding import SlidingCounts
from kafka2011.services.site.use import Result, Use, time_of

WINDOW_MS = 300_000
BUCKET_MS = 10_000
KEYS_MAX = 5_000
TOP = 10
POSITIONS = 10
CLICKED_MAX = 20_000


class Search(Use):
    name = "search"
    topics = (SEARCH, IMPRESSION, CLICK)
    result_topic = SITE_SEARCH

    def __init__(self) -> None:
        def counts() -> SlidingCounts:
            return SlidingCounts(WINDOW_MS, BUCKET_MS, KEYS_MAX)

        # By query: searches, those that found nothing, those that were clicked, clicks.
        self._searches, self._empty, self._answered, self._clicks = (counts() for _ in range(4))
        self._results = counts()  # clicks by result
        self._shown_at, self._clicked_at = counts(), counts()  # by position
        self._clicked: OrderedDict[str, None] = OrderedDict()  # searches

    def take(self, topic: str, event: Record, now_ms: int) -> None:
        time_ms = time_of(event)
        if topic == SEARCH:
            self._searches.add(event["query"], time_ms, now_ms)
            if not event["result_count"]:
                self._empty.add(event["query"], time_ms, now_ms)
            return
        search = event.get("search")
        if search is None:
            return
        position = str(event["position"])
        if topic == IMPRESSION:
            self._shown_at.add(position, time_ms, now_ms)
            return
        query = event["query"] or ""
        self._clicked_at.add(position, time_ms, now_ms)
        self._clicks.add(query, time_ms, now_ms)
        self._results.add(event["item"], time_ms, now_ms)
        name = search.hex()
        if name not in self._clicked:
            self._clicked[name] = None
            self._answered.add(query, time_ms, now_ms)
            if len(self._clicked) > CLICKED_MAX:
                self._clicked.popitem(last=False)

    def shown(self, now_ms: int) -> Mapping[str, Any]:
        """What the page shows; `without`: searches that no click has followed yet."""
        searches, clicked = self._searches.total(now_ms), self._answered.total(now_ms)
        return {
            "from_ms": self._searches.start_ms(now_ms),
            "searches": searches,
            "empty": self._empty.total(now_ms),
            "clicks": self._clicks.total(now_ms),
            "without": max(0, searches - clicked),
            "queries": [self._row(query, now_ms) for query, _ in self._searches.top(TOP, now_ms)],
            "results": [
                {"item": item, "count": count} for item, count in self._results.top(TOP, now_ms)
            ],
            "positions": [
                {
                    "position": position,
                    "shown": self._shown_at.count(str(position), now_ms),
                    "clicked": self._clicked_at.count(str(position), now_ms),
                }
                for position in range(POSITIONS)
                if self._shown_at.count(str(position), now_ms)
                or self._clicked_at.count(str(position), now_ms)
            ],
            "is_exact": self._searches.is_exact(now_ms) and self._results.is_exact(now_ms),
        }

    def _row(self, query: str, now_ms: int) -> dict[str, Any]:
        searches = self._searches.count(query, now_ms)
        return {
            "query": query,
            "searches": searches,
            "empty": self._empty.count(query, now_ms),
            "clicks": self._clicks.count(query, now_ms),
            "without": max(0, searches - self._answered.count(query, now_ms)),
        }

    def results(self, now_ms: int) -> list[Result]:
        start = self._searches.start_ms(now_ms)
        rows = (self._row(query, now_ms) for query, _ in self._searches.top(TOP, now_ms))
        return [
            Result(
                SITE_SEARCH,
                now_ms,
                row["query"],
                {
                    "window_start": start,
                    "query": row["query"],
                    "searches": row["searches"],
                    "clicks": row["clicks"],
                    "without_click": None if self.is_late else row["without"],
                    "without_result": row["empty"],
                },
            )
            for row in rows
        ]

    def _tables(self) -> dict[str, SlidingCounts]:
        return {
            "searches": self._searches,
            "empty": self._empty,
            "answered": self._answered,
            "clicks": self._clicks,
            "results": self._results,
            "shown_at": self._shown_at,
            "clicked_at": self._clicked_at,
        }

    def state(self) -> Mapping[str, Any]:
        tables = {name: counts.state() for name, counts in self._tables().items()}
        return {**tables, "clicked": list(self._clicked)}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, counts in self._tables().items():
            counts.restore(state[name])
        self._clicked.update(dict.fromkeys(state["clicked"]))
