"""docs/sizing.md follows from the measured figures of the other pages."""

import re

import pytest

from benchmarks.sizing import COSTS, row, size
from tests.unit import text_of

# The figure as its page has it, and what a message costs by it, in microseconds.
SOURCES = {
    "producer": ("docs/performance.md", r"takes ([\d.]+) µs of the\s+process's\s+time", 1),
    "broker, produce": ("docs/performance.md", r"produce, 50 messages \| 16 to (\d+) µs", 1 / 50),
    "broker, fetch": ("docs/performance.md", r"fetch, 1 MiB \| 180 to (\d+) µs", 210 / 2**20),
    "mirror": ("docs/mirror.md", r"([\d.]+) s of the mirror's processor time per\s+million", 1),
}
# The same of figures that are millions a second.
RATES = {
    "audit, one tier": ("docs/audit.md", r"(\d+) to [\d.]+ million per second\s+of its own CPU", 1),
    "load": ("docs/warehouse.md", r"a whole load task.*\| ([\d,]+) /s", 1e6),
    "consumer": ("docs/performance.md", r"group consumer's stream \| \| \| ([\d,]+)", 1e6),
}


def figure(page: str, pattern: str) -> float:
    found = re.search(pattern, text_of(page))
    assert found, f"{page}: {pattern}"
    return float(found[1].replace(",", ""))


def test_the_costs_are_the_measured_figures() -> None:
    costs = {name: figure(page, text) * unit for name, (page, text, unit) in SOURCES.items()}
    costs |= {name: unit / figure(page, text) for name, (page, text, unit) in RATES.items()}
    assert pytest.approx(costs) == COSTS
    shown = re.findall(r"^\| [a-z].* \| (\d\.\d\d) \|", text_of("docs/sizing.md"), re.M)
    assert shown == [f"{COSTS[name]:.2f}" for name in COSTS]


@pytest.mark.parametrize("messages_a_day", [1e9, 1e10, 1e11])
def test_the_table_is_what_the_function_says(messages_a_day: float) -> None:
    assert row(messages_a_day, size(messages_a_day)) in text_of("docs/sizing.md").splitlines()


def test_what_the_page_says_beside_the_table() -> None:
    text = text_of("docs/sizing.md")
    full = 1e11 / size(1e11).audit_cores  # a day, where the audit's one core is full at the peak
    assert f"at the peak of {full / 1e9:.0f} billion" in text
    assert f"the mean is {size(1e11, peak=1).audit_cores:.1f} of a core" in text
    disks = 2 * -(-size(1e11).disk_bytes // 8e12)
    assert f"{disks:.0f} disks" in text
    assert f"{size(1e10).written_bytes_per_s * 600 / 1e9:.0f} GB" in text


def test_larger_messages_and_longer_retention_need_more() -> None:
    assert size(1e10, message_bytes=2000).live_cores > 9 * size(1e10).live_cores
    assert size(1e10, message_bytes=20).live_cores == size(1e10).live_cores
    assert size(1e10, retention_days=14).disk_bytes == 2 * size(1e10).disk_bytes
