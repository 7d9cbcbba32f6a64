"""What unclean elections of replica sets may have lost, for a recount: their records in ZooKeeper.

By such an election a copy that may lack confirmed messages becomes the only one. What was confirmed
beyond the ends of its logs is lost: the record names these ends, the set and the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka2011.coordination.registry import Registry
from kafka2011.coordination.replica_sets import set_views, unclean_elections
from kafka2011.runtime.clock import utc_text


@dataclass(frozen=True, slots=True)
class Loss:
    """One election. `ends`: offsets from which on messages are lost, by partition directory."""

    tier: str
    broker_id: int
    at_ms: int
    reason: str
    ends: Mapping[str, int] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """One line for each partition."""
        at = utc_text(self.at_ms)
        place = f"{self.tier} broker {self.broker_id}: {self.reason}, at {at}"
        return [
            f"{place}: what was confirmed of {partition} from offset {end} on until then is lost"
            for partition, end in sorted(self.ends.items())
        ] or [f"{place}: what was confirmed until then is lost"]


def losses(registry: Registry, tier: str) -> list[Loss]:
    """The elections that took place in the cluster of that tier, by set and epoch. Raises
    CoordinationError."""
    return [
        Loss(tier, broker_id, record.at_ms, record.reason, record.ends)
        for broker_id, view in sorted(set_views(registry).items())
        for record in unclean_elections(registry, view)
    ]


def loss_of(found: Sequence[Loss], tiers: Sequence[str], index: int, window_start_ms: int) -> str:
    """Why messages of a window may be missing at a tier: the newest election there or at a tier
    before, after the window had begun; "" if there is none."""
    before = set(tiers[: index + 1])
    able = [one for one in found if one.tier in before and one.at_ms >= window_start_ms]
    return max(able, key=lambda one: one.at_ms).reason if able else ""
