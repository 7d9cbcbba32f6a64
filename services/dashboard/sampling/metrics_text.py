"""Parses the wanted samples of a /metrics text, at some microseconds a line.

prometheus_client's own parser takes ten times as long and keeps every family, which matters when a
dozen processes are read every second. Unreadable lines are skipped: no process's metrics may stop
the dashboard.
"""

import math
import re
from collections.abc import Collection

Labels = dict[str, str]
Sample = tuple[Labels, float]
Samples = dict[str, list[Sample]]

SAMPLES_MAX = 200_000  # of one process; 10,000 partitions have five each

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


def parse(
    text: str, wanted: Collection[str], may_be_unknown: Collection[str] = frozenset()
) -> Samples:
    """Name -> samples of the wanted names (sample names: counters end in `_total`). A value that is
    no finite number is skipped, except NaN for names in `may_be_unknown`."""
    found: Samples = {}
    count = 0
    for line in text.split("\n"):  # not splitlines(): a label's value may hold other line ends
        brace = line.find("{")
        name = line[:brace] if brace > 0 else line.partition(" ")[0]
        if name not in wanted:
            continue
        end = line.rfind("}") + 1 if brace > 0 else len(name)
        try:
            value = float(line[end:].split()[0])
        except (ValueError, IndexError):
            continue
        if not (math.isfinite(value) or (math.isnan(value) and name in may_be_unknown)):
            continue
        labels = _labels(line[brace + 1 : end - 1]) if brace > 0 else {}
        found.setdefault(name, []).append((labels, value))
        count += 1
        if count >= SAMPLES_MAX:
            break
    return found


def _labels(text: str) -> Labels:
    if "\\" not in text:
        return dict(_LABEL.findall(text))
    return {
        name: _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value)
        for name, value in _LABEL.findall(text)
    }


def total(samples: Samples, name: str, **labels: str) -> float:
    """Sum of the samples that have these labels; 0 when there are none."""
    return sum(
        value
        for found, value in samples.get(name, ())
        if all(found.get(label) == wanted for label, wanted in labels.items())
    )


def known_total(samples: Samples, name: str) -> int | None:
    """Sum of the samples; None when it is not known: there are none, or one is NaN."""
    found = sum((value for _, value in samples.get(name, ())), start=0.0)
    return int(found) if samples.get(name) and math.isfinite(found) else None


def by_label(samples: Samples, name: str, label: str) -> dict[str, float]:
    """Sums by the values of one label."""
    sums: dict[str, float] = {}
    for found, value in samples.get(name, ()):
        key = found.get(label, "")
        sums[key] = sums.get(key, 0.0) + value
    return sums
