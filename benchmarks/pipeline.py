"""How many events a second does this machine carry through the whole deployment?

    python -m benchmarks.pipeline [--rates 5000,10000,20000,30000] [--seconds 30] [--json]

One demo a rate, lowest first: frontend, balancer, live brokers, online consumers, site, mirror,
offline brokers, streaming load, and the audit, which must balance at the end. A rate is carried
where every tier keeps up with it in the second half of the activity: none falls behind by more than
3 % of the rate. Processor time and memory are of that half; delays are the audit's, of all of it.
The first rate that is not carried is the last one tried.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.deployment import Deployment, Rate, measured, running
from benchmarks.idle import table as process_table
from benchmarks.machine import facts

RATES = "5000,10000,20000,30000,40000"
TIERS = ("live", "offline", "warehouse")
BEHIND_MAX = 0.03  # of the rate
DRAIN_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Carried:
    """One rate's demo. By tier: `per_s` are messages a second, `delays_ms` median and 99 %."""

    rate: int
    per_s: dict[str, float]
    delays_ms: dict[str, tuple[float, float]]
    is_complete: bool
    seconds: float  # of the whole demo
    processes: list[Rate]

    @property
    def keeps_up(self) -> bool:
        return all(found >= (1 - BEHIND_MAX) * self.rate for found in self.per_s.values())


def counts_of(summary: dict[str, Any]) -> dict[str, int]:
    return {tier: int(summary["tiers"].get(tier, {}).get("count", 0)) for tier in TIERS}


def rates_between(
    before: dict[str, int], after: dict[str, int], seconds: float
) -> dict[str, float]:
    return {tier: (after[tier] - before[tier]) / seconds for tier in TIERS}


def one_rate(root: Path, rate: int, seconds: float) -> Carried:
    """Raises RuntimeError: the audit did not answer."""
    settings = {
        "embedded.rate": rate,
        "embedded.duration.ms": int(1000 * seconds),
        "embedded.dashboard.port": 0,
        "embedded.port.base": 0,
        "embedded.start.timeout.ms": 300_000,
    }
    began_s = time.monotonic()
    with running(root, settings, "demo") as deployment:
        time.sleep(seconds / 2)
        before, at_s = _asked(deployment), time.monotonic()
        processes = measured(deployment, seconds / 2 - 3)
        after, until_s = _asked(deployment), time.monotonic()
        last = after
        while deployment.is_running and time.monotonic() < began_s + DRAIN_TIMEOUT_S:
            last = deployment.audit() or last
            time.sleep(0.5)
        status = deployment.wait(DRAIN_TIMEOUT_S)
    return Carried(
        rate,
        rates_between(counts_of(before), counts_of(after), until_s - at_s),
        {tier: _delays(last["tiers"].get(tier, {})) for tier in TIERS},
        status == 0,
        time.monotonic() - began_s,
        processes,
    )


def _asked(deployment: Deployment) -> dict[str, Any]:
    for _ in range(20):
        summary = deployment.audit()
        if summary is not None:
            return summary
        time.sleep(0.1)
    raise RuntimeError(f"the audit does not answer:\n{deployment.log()}")


def _delays(tier: dict[str, Any]) -> tuple[float, float]:
    return (tier.get("delay_p50_ms") or 0.0), (tier.get("delay_p99_ms") or 0.0)


def table(found: list[Carried]) -> Table:
    shown = Table(header_style="bold", box=None)
    for heading in ("events a second", *TIERS, *(f"delay: {tier}" for tier in TIERS)):
        shown.add_column(heading, justify="right")
    for heading in ("keeps up", "complete", "processor", "memory"):
        shown.add_column(heading, justify="right")
    for one in found:
        shown.add_row(
            f"{one.rate:,}",
            *(f"{one.per_s[tier]:,.0f}" for tier in TIERS),
            *("{:,.0f} / {:,.0f} ms".format(*one.delays_ms[tier]) for tier in TIERS),
            "yes" if one.keeps_up else "no",
            "yes" if one.is_complete else "NO",
            f"{sum(rate.cpu_ms_per_s for rate in one.processes) / 10:.0f} %",
            f"{sum(rate.proportional_mib for rate in one.processes):,.0f} MiB",
        )
    return shown


def main() -> int:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--rates", default=RATES, help=f"events a second ({RATES})")
    words.add_argument("--seconds", type=float, default=30.0, help="of activity a rate (30)")
    words.add_argument("--json", action="store_true", help="the results as JSON, no tables")
    given = words.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    found: list[Carried] = []
    try:
        machine = facts(directory)
        for rate in sorted(map(int, given.rates.split(","))):
            found.append(one_rate(directory / f"var-{rate}", rate, given.seconds))
            shutil.rmtree(directory / f"var-{rate}", ignore_errors=True)
            if not found[-1].keeps_up:
                break
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if given.json:
        print(json.dumps({"machine": machine, "rates": [asdict(one) for one in found]}, indent=1))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table(found))
    carried = [one for one in found if one.keeps_up]
    shown = carried[-1] if carried else found[0]
    console.print(f"\nat {shown.rate:,} events a second:")
    console.print(process_table(shown.processes))
    return 0 if all(one.is_complete for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
