"""What was observed of a deployment, for the tests of rows."""

from typing import Any

from kafka2011.services.dashboard.sampling.observations import (
    Observations,
    ObservedCluster,
    ObservedProcess,
)


def process(kind: str, name: str, dc: str = "live", **samples: Any) -> ObservedProcess:
    """A process that is up, with these samples of its metrics."""
    found = ObservedProcess(f"{dc}/{name}", dc, name, kind, f"{name}:1")
    found.health.note_node(True)
    found.health.note_scrape(True)
    found.samples = samples
    return found


def observations(
    *processes: ObservedProcess, now_ms: int = 0, clusters: dict[str, ObservedCluster] | None = None
) -> Observations:
    by_key = {one.key: one for one in processes}
    return Observations(now_ms, by_key, clusters or {}, None, {}, None, {}, {})
