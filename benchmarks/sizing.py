"""How many cores, disks and hosts a number of messages a day needs: arithmetic, nothing is run.

    python -m benchmarks.sizing --messages-a-day 3e9 --bytes 400 --peak 4

COSTS are the measured figures of the documentation, for messages of 200 bytes and the compiled
build; tests/unit/test_sizing.py holds them, and the table of docs/sizing.md, against the pages.
"""

import argparse
import math
from dataclasses import dataclass

MEASURED_BYTES = 200  # of a message in the measurements
ENTRY_BYTES = 10  # that a log adds to a message

# Processor time of a message, microseconds. A fetch is that of one reader of a broker.
COSTS = {
    "producer": 0.7,
    "broker, produce": 26 / 50,
    "broker, fetch": 330 / (2**20 / (MEASURED_BYTES + ENTRY_BYTES)),
    "mirror": 0.27,
    "audit, one tier": 1 / 4,
    "load": 1 / 0.22,
    "consumer": 1 / 6,
}
LIVE_READERS = 3  # mirror, one online group, audit
OFFLINE_READERS = 2  # load, audit


@dataclass(frozen=True)
class Host:
    """What one machine has, and how much of it is planned to be used."""

    cores: int = 16
    disk_bytes: float = 4 * 8e12
    network_bytes_per_s: float = 1.25e9
    used_at_peak: float = 0.5


@dataclass(frozen=True)
class Size:
    """What a deployment needs. Rates are per second, at the peak; cores are those to be there."""

    peak_rate: float
    written_bytes_per_s: float
    day_bytes: float
    disk_bytes: float  # of one datacenter's logs
    live_cores: float
    offline_cores: float
    live_hosts: int
    offline_hosts: int
    audit_cores: float  # of its one process, at work


def size(
    messages_a_day: float,
    message_bytes: float = MEASURED_BYTES,
    peak: float = 3,
    retention_days: float = 7,
    host: Host | None = None,
) -> Size:
    """The deployment for a number of messages a day.

    `peak` is the busiest hour's rate over the day's mean. Costs grow with the bytes of a message
    where they are larger than those measured. A datacenter has one host more than its load needs,
    and three at least, for ZooKeeper.
    """
    host = host or Host()
    rate = messages_a_day / 86_400 * peak
    entry = message_bytes + ENTRY_BYTES
    heavier = max(1.0, entry / (MEASURED_BYTES + ENTRY_BYTES))
    cost = {name: micros * heavier / 1e6 for name, micros in COSTS.items()}
    broker = cost["broker, produce"], cost["broker, fetch"]
    live = broker[0] + LIVE_READERS * broker[1] + cost["consumer"]
    audit = 2 * cost["audit, one tier"]
    offline = broker[0] + OFFLINE_READERS * broker[1] + cost["mirror"] + cost["load"] + audit
    written = rate * entry
    disk = messages_a_day * entry * retention_days * 1.25

    def hosts(cores: float, readers: int) -> int:
        needed = (
            cores / host.cores,
            disk / host.disk_bytes,
            written * (1 + readers) / host.network_bytes_per_s / host.used_at_peak,
        )
        return max(3, math.ceil(max(needed)) + 1)

    live_cores = rate * live / host.used_at_peak
    offline_cores = rate * offline / host.used_at_peak
    return Size(
        rate,
        written,
        messages_a_day * entry,
        disk,
        live_cores,
        offline_cores,
        hosts(live_cores, LIVE_READERS),
        hosts(offline_cores, OFFLINE_READERS),
        rate * audit,
    )


def row(messages_a_day: float, found: Size) -> str:
    """A row of the table in docs/sizing.md."""
    cells = (
        f"{messages_a_day / 1e9:,.0f}",
        f"{found.peak_rate:,.0f}",
        f"{found.written_bytes_per_s / 1e6:,.0f} MB",
        f"{found.day_bytes / 1e12:.2f} TB",
        f"{found.disk_bytes / 1e12:.1f} TB",
        f"{found.live_cores:.1f}",
        f"{found.offline_cores:.1f}",
        f"{found.live_hosts}",
        f"{found.offline_hosts}",
        f"{found.audit_cores:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages-a-day", type=float, default=1e9)
    parser.add_argument("--bytes", type=float, default=MEASURED_BYTES)
    parser.add_argument("--peak", type=float, default=3)
    parser.add_argument("--retention-days", type=float, default=7)
    given = parser.parse_args()
    found = size(given.messages_a_day, given.bytes, given.peak, given.retention_days)
    for name, value in vars(found).items():
        print(f"{name:20} {value:,.1f}")


if __name__ == "__main__":
    main()
