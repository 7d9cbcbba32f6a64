"""Draws each curve with its laws: a dotted line through the first point of what was measured."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.growth.curves import Curve
from benchmarks.peers.figures import save

Points = list[dict[str, float]]


def law_through(values: tuple[int, ...], first: float, power: float) -> list[float]:
    """What each value would give if the figure grew with that power from the first point on."""
    return [first * (value / values[0]) ** power for value in values]


def draw(curve: Curve, points: Points, directory: Path) -> Iterator[Path]:
    """Write the figure; yields its paths."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import EngFormatter

    directory.mkdir(parents=True, exist_ok=True)
    _, axes = plt.subplots(figsize=(8, 4.5))
    axes.set(xlabel=curve.x, ylabel=curve.y, title=f"{curve.name}: {curve.law}")
    is_flat = all(line.law == 0 for line in curve.lines)
    axes.set(xscale="log", yscale="linear" if is_flat else "log")
    axes.set_xticks(curve.values, map(str, curve.values), minor=False)
    axes.minorticks_off()
    values = curve.values[: len(points)]
    palette: Any = plt.get_cmap("tab10")
    for number, line in enumerate(curve.lines):
        found = [point[line.figure] for point in points]
        axes.plot(values, found, "o-", label=line.label, color=palette(number), linewidth=1.5)
        law = law_through(values, found[0], line.law)
        axes.plot(values, law, ":", color=palette(number), linewidth=1.0)
    if is_flat:
        axes.yaxis.set_major_formatter(EngFormatter(sep=" "))
        axes.set_ylim(bottom=0)
    yield from save(plt, axes, directory, f"growth-{curve.name}")
