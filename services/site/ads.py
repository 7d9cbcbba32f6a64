"""Ads: impressions, clicks and spend of each campaign, paced against its budget.

An event is charged once: a producer that is not sure sends it again, with the same guid. The pace
is what a campaign spent in the last minute, as a multiple of what its hourly budget allows in a
minute; `serve` is the part of its impressions that would keep it to the budget.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from kafka2011.events.codec import Record
from kafka2011.events.topics import CLICK, IMPRESSION, SITE_ADS
from kafka2011.services.site.sliding import SlidingCounts
from kafka2011.services.site.use import Result, Use, time_of

HOUR_MS = 3_600_000
PACE_MS = 60_000
PACE_BUCKET_MS = 1_000
PACE_MIN_MS = 5_000  # less says nothing
CAMPAIGNS_MAX = 200
CHARGED_MAX = 20_000  # guids: some minutes of them
ON_PACE = (0.9, 1.1)
HOURS_KEPT = 2


def verdict(spent: int, budget: int, pace: float | None, is_late: bool = False) -> str:
    """`no budget`, `spent`, `ahead`, `behind`, `on pace`; without a pace `starting`, or `not known`
    while the events of the last minute are not all read."""
    if not budget:
        return "no budget"
    if spent >= budget:
        return "spent"
    if pace is None:
        return "not known" if is_late else "starting"
    return "ahead" if pace > ON_PACE[1] else "behind" if pace < ON_PACE[0] else "on pace"


class Ads(Use):
    name = "ads"
    topics = (IMPRESSION, CLICK)
    result_topic = SITE_ADS

    def __init__(self, budgets: Mapping[str, int]) -> None:
        """`budgets`: campaign -> micros for an hour."""
        self._budgets = dict(budgets)
        # campaign -> [hour, impressions, clicks, micros], newest hour last
        self._hours: dict[str, list[list[int]]] = {}
        self._first_ms: dict[str, int] = {}
        self._recent = SlidingCounts(PACE_MS, PACE_BUCKET_MS, CAMPAIGNS_MAX)
        self._charged: OrderedDict[str, None] = OrderedDict()
        self._repeated = self._left_out = 0

    def take(self, topic: str, event: Record, now_ms: int) -> None:
        campaign = event.get("campaign")
        if campaign is None:
            return
        guid = event["header"]["guid"].hex()
        if guid in self._charged:
            self._repeated += 1
            return
        self._charged[guid] = None
        if len(self._charged) > CHARGED_MAX:
            self._charged.popitem(last=False)
        if campaign not in self._hours and len(self._hours) >= CAMPAIGNS_MAX:
            self._left_out += 1
            return
        time_ms, price = time_of(event), event["price_micros"]
        self._first_ms.setdefault(campaign, min(time_ms, now_ms))  # every key of `_hours` has one
        cell = self._cell(campaign, time_ms // HOUR_MS)
        cell[1 if topic == IMPRESSION else 2] += 1
        cell[3] += price
        if price:
            self._recent.add(campaign, time_ms, now_ms, price)

    def _cell(self, campaign: str, hour: int) -> list[int]:
        hours = self._hours.setdefault(campaign, [])
        for cell in hours:
            if cell[0] == hour:
                return cell
        hours.append([hour, 0, 0, 0])
        hours.sort()
        del hours[:-HOURS_KEPT]
        return next((cell for cell in hours if cell[0] == hour), [hour, 0, 0, 0])

    def shown(self, now_ms: int) -> Mapping[str, Any]:
        """The campaigns in the present hour, by name; money in micros."""
        return {
            "hour_ms": now_ms // HOUR_MS * HOUR_MS,
            "campaigns": [self._row(name, now_ms) for name in sorted(self._hours)],
            "repeated": self._repeated,
            "is_exact": not self._left_out,
        }

    def _row(self, campaign: str, now_ms: int) -> dict[str, Any]:
        hour = now_ms // HOUR_MS
        found = next((cell for cell in self._hours[campaign] if cell[0] == hour), [hour, 0, 0, 0])
        budget = self._budgets.get(campaign, 0)
        elapsed_ms = min(PACE_MS, now_ms - self._first_ms[campaign])
        pace = None
        if budget and elapsed_ms >= PACE_MIN_MS and not self.is_late:
            allowed = budget * elapsed_ms / HOUR_MS
            pace = self._recent.count(campaign, now_ms) / allowed
        return {
            "campaign": campaign,
            "impressions": found[1],
            "clicks": found[2],
            "spent": found[3],
            "budget": budget,
            "pace": None if pace is None else round(pace, 3),
            "verdict": verdict(found[3], budget, pace, self.is_late),
            "serve": None if pace is None else round(min(1.0, 1 / pace if pace else 1.0), 3),
        }

    def results(self, now_ms: int) -> list[Result]:
        rows = (self._row(name, now_ms) for name in sorted(self._hours))
        return [
            Result(
                SITE_ADS,
                now_ms,
                row["campaign"],
                {
                    "hour": now_ms // HOUR_MS * HOUR_MS,
                    "campaign": row["campaign"],
                    "impressions": row["impressions"],
                    "clicks": row["clicks"],
                    "spent_micros": row["spent"],
                    "budget_micros": row["budget"],
                    "serve": row["serve"],
                },
            )
            for row in rows
        ]

    def state(self) -> Mapping[str, Any]:
        return {
            "hours": self._hours,
            "first_ms": self._first_ms,
            "recent": self._recent.state(),
            "charged": list(self._charged),
            "counts": [self._repeated, self._left_out],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._hours = dict(state["hours"])
        self._first_ms = dict(state["first_ms"])
        self._recent.restore(state["recent"])
        self._charged.update(dict.fromkeys(state["charged"]))
        self._repeated, self._left_out = state["counts"]
