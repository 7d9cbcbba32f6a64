"""Draws the entry of a history as the paper draws its figures 4 and 5, and latency against rate.

Each line is the median run of a contestant. Solid lines are durable before an answer, dashed ones
are not: compare like with like. Of latency, the rates that were reached in every run.
"""

import statistics
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.peers.common import DURABLE, MESSAGE_BYTES, WINDOW
from benchmarks.peers.tables import by_contestant, of_runs

MB = 1_000_000
FORMATS = ("png", "svg")
CURVE_FROM = 5 * WINDOW  # messages


def draw(entry: dict[str, Any], directory: Path) -> Iterator[Path]:
    """Write the figures; yields their paths."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "kafka2011"  # the same figures, the same file
    from matplotlib import pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    throughputs = by_contestant(entry, "throughput")
    latencies = by_contestant(entry, "latency")

    def saved(name: str, axes: Any) -> Iterator[Path]:
        return save(plt, axes, directory, name)

    colours = _colours(plt, {**throughputs, **latencies})
    if throughputs:
        for batch in (50, 1):
            axes = _axes(plt, "MB sent", "producer throughput, MB/s", f"batch size {batch}")
            for title, runs in throughputs.items():
                _line(axes, title, _curve(runs, batch, "produced"), colours)
            yield from saved(f"figure-4-batch-{batch}", axes)
        axes = _axes(plt, "MB consumed", "consumer throughput, MB/s", "consumer")
        for title, runs in throughputs.items():
            _line(axes, title, _curve(runs, 50, "consumed"), colours)
        yield from saved("figure-5", axes)
    if latencies:
        axes = _axes(plt, "messages/s", "producer to consumer, ms", "median; dots: 99 %")
        axes.set_xscale("log")
        for title, runs in latencies.items():
            rates = sorted(
                rate
                for rate in {one["rate"] for run in runs for one in run}
                if len(of_runs(runs, "rate", rate, "p50_ms")) == len(runs)
            )
            p50 = [statistics.median(of_runs(runs, "rate", rate, "p50_ms")) for rate in rates]
            p99 = [statistics.median(of_runs(runs, "rate", rate, "p99_ms")) for rate in rates]
            _line(axes, title, (rates, p50), colours)
            axes.plot(rates, p99, ".", color=colours[title])
        yield from saved("latency", axes)


def save(plt: Any, axes: Any, directory: Path, name: str) -> Iterator[Path]:
    """Write the figure with grid and legend, in all forms; yields their paths."""
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    for form in FORMATS:
        path = directory / f"{name}.{form}"
        plt.savefig(path, bbox_inches="tight", dpi=120, metadata=_undated(form))
        yield path
    plt.close()


def _undated(form: str) -> dict[str, None]:
    return {"Date": None} if form == "svg" else {}


def _colours(plt: Any, titles: dict[str, Any]) -> dict[str, Any]:
    """A colour for each system, the same in all figures and for both settings."""
    names = list(dict.fromkeys(title.rpartition(", ")[0] for title in titles))
    palette = plt.get_cmap("tab10")
    return {title: palette(names.index(title.rpartition(", ")[0]) % 10) for title in titles}


def _axes(plt: Any, x: str, y: str, title: str) -> Any:
    _, axes = plt.subplots(figsize=(8, 4.5))
    axes.set(xlabel=x, ylabel=y, title=title, yscale="log")
    return axes


def _line(axes: Any, title: str, points: tuple[list[float], list[float]], colours: Any) -> None:
    style = "-" if title.endswith(DURABLE) else "--"
    axes.plot(*points, style, label=title, color=colours[title], linewidth=1.5)


def _curve(
    runs: list[list[dict[str, Any]]], batch: int, timeline: str
) -> tuple[list[float], list[float]]:
    """MB and MB/s of the run whose rate is the median one."""
    taken = [one for run in runs for one in run if one["batch"] == batch]
    taken.sort(key=lambda one: one[timeline][-1][0] / one[timeline][-1][1])
    return throughput_points(taken[len(taken) // 2][timeline])


def throughput_points(timeline: list[list[float]]) -> tuple[list[float], list[float]]:
    """MB so far, and MB/s over the points just before, of (messages, seconds) points. Of few
    messages the mean: a window of them left at once, and its answers came behind the last one."""
    messages, seconds = timeline[-1]
    if messages < CURVE_FROM:
        megabytes = messages * MESSAGE_BYTES / MB
        return [0.0, megabytes], [megabytes / seconds] * 2
    thinned = [(0, 0.0), *timeline[:: max(1, len(timeline) // 40)], timeline[-1]]
    sent, rates = [], []
    for (before, before_s), (now, now_s) in pairwise(thinned):
        if now > before and now_s > before_s:
            sent.append(now * MESSAGE_BYTES / MB)
            rates.append((now - before) * MESSAGE_BYTES / MB / (now_s - before_s))
    return sent, rates
