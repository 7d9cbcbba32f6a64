"""The results of one entry of the history as tables: medians, with the least and the most."""

import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.contestants import CONTESTANTS

PROMISES = {one.title: one.promise for one in CONTESTANTS}


def by_contestant(entry: dict[str, Any], what: str) -> dict[str, list[list[dict[str, Any]]]]:
    """For each contestant's title its runs, each a list of measurements."""
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for record in entry["records"]:
        if what in record:
            found.setdefault(f"{record['peer']}, {record['setting']}", []).append(record[what])
    return found


def of_runs(runs: list[list[dict[str, Any]]], key: str, value: int, figure: str) -> list[float]:
    """One figure of all runs, of the measurements whose `key` has that value, sorted."""
    return sorted(one[figure] for run in runs for one in run if one[key] == value)


def spread(values: list[float], form: str = ",.0f") -> str:
    if not values:
        return ""
    middle = statistics.median(values)
    if len(values) == 1:
        return f"{middle:{form}}"
    return f"{middle:{form}} ({values[0]:{form}}-{values[-1]:{form}})"


def print_entry(console: Console, entry: dict[str, Any]) -> None:
    machine = ", ".join(f"{name} {value}" for name, value in entry["machine"].items())
    console.print(f"{machine}; medians (least-most) of {entry['runs']} runs", highlight=False)
    throughputs = by_contestant(entry, "throughput")
    for batch in sorted({one["batch"] for runs in throughputs.values() for one in runs[0]}):
        console.print(_throughput_table(throughputs, batch))
    if latencies := by_contestant(entry, "latency"):
        console.print(_latency_table(latencies))
    for title, reason in entry["missing"].items():
        console.print(f"{title}: {reason}", highlight=False)
    for title in throughputs or latencies:
        console.print(f"{title}: {PROMISES.get(title, '')}", highlight=False)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table


def _throughput_table(found: dict[str, list[list[dict[str, Any]]]], batch: int) -> Table:
    table = _table(
        f"messages a request: {batch}",
        "system",
        "produce, messages/s",
        "consume, messages/s",
        "server µs",
        "client µs",
        "peak MiB",
        "disk, bytes",
    )
    for title, runs in found.items():

        def figure(name: str, form: str, runs: list[list[dict[str, Any]]] = runs) -> str:
            return spread(of_runs(runs, "batch", batch, name), form)

        def middle(name: str, runs: list[list[dict[str, Any]]] = runs) -> float:
            return statistics.median(of_runs(runs, "batch", batch, name))

        table.add_row(
            title,
            figure("produce_messages_per_s", ",.0f"),
            figure("consume_messages_per_s", ",.0f"),
            f"{middle('produce_server_us'):.2f} + {middle('consume_server_us'):.2f}",
            f"{middle('produce_client_us'):.2f} + {middle('consume_client_us'):.2f}",
            f"{middle('peak_mib'):,.0f}",
            # A queue may free more of what it had before than these messages take.
            f"{disk:.0f}" if (disk := middle("disk_bytes_per_message")) > 0 else "-",
        )
    return table


def _latency_table(found: dict[str, list[list[dict[str, Any]]]]) -> Table:
    rates = sorted({one["rate"] for runs in found.values() for run in runs for one in run})
    table = _table(
        "producer to consumer, ms: median / 99 %", "system", *(f"{rate:,}/s" for rate in rates)
    )
    for title, runs in found.items():
        cells = []
        for rate in rates:
            p50 = of_runs(runs, "rate", rate, "p50_ms")
            p99 = of_runs(runs, "rate", rate, "p99_ms")
            cell = f"{statistics.median(p50):.2f} / {statistics.median(p99):.2f}" if p50 else "-"
            # A rate that was too high in the others has no figure of theirs.
            some = f" ({len(p50)} of {len(runs)} runs)" if 0 < len(p50) < len(runs) else ""
            cells.append(f"{cell}{some}")
        table.add_row(title, *cells)
    return table
