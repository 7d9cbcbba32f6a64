"""Every metric that the dashboard, the alerts and Grafana name exists in the processes' code."""

import functools
import json
import re
from pathlib import Path

import pytest
import yaml

from kafka2011.services.dashboard.sampling.observations import METRICS
from tests import ROOT

OPS = ROOT / "deploy/ops"
SUFFIXES = ("_total", "_bucket", "_sum", "_count", "_created")
NAME = re.compile(r"\bkafka2011_[a-z0-9_]+\b")
# Families whose names are put together from a prefix and these words, by file.
PREFIXED = {
    "broker/metrics.py": "kafka2011_broker_",
    "services/audit/metrics.py": "kafka2011_audit_",
    "services/frontend/progress.py": "kafka2011_frontend_",
    "services/mirror_maker/metrics.py": "kafka2011_mirror_",
}


@functools.cache
def names_in_code() -> set[str]:
    found: set[str] = set()
    for room in ("broker", "services", "producer", "consumer", "kafka2011/runtime"):
        for path in (ROOT / room).rglob("*.py"):
            if "services/dashboard/" in path.as_posix() and path.name != "app.py":
                continue
            text = path.read_text(encoding="utf-8")
            found |= set(NAME.findall(text))
            prefix = PREFIXED.get(path.relative_to(ROOT).as_posix())
            if prefix:
                found |= {prefix + word for word in re.findall(r'"([a-z][a-z0-9_]+)"', text)}
    return found


RUNBOOK = ["What it means", "How to see it", "What to do", "How to know that it worked"]


def is_there(name: str) -> bool:
    names = {name, f"{name}_total", *(name.removesuffix(suffix) for suffix in SUFFIXES)}
    return bool(names & names_in_code())


@pytest.mark.parametrize("name", METRICS)
def test_what_the_dashboard_reads_exists(name: str) -> None:
    assert is_there(name)


def test_what_ops_names_exists_and_what_does_not_would_be_found() -> None:
    named = {
        (path.name, name)
        for path in [*OPS.glob("*.yml"), *OPS.glob("grafana/*.json")]
        for name in NAME.findall(path.read_text(encoding="utf-8"))
    }
    assert named
    assert [pair for pair in sorted(named) if not is_there(pair[1])] == []
    assert not is_there("kafka2011_broker_nonsense_total")


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) >= 8
    pages = {f"docs/runbook/{page.name}" for page in (ROOT / "docs/runbook").glob("[!R]*.md")}
    assert pages == {rule["annotations"]["runbook"] for rule in alerts}
    index = (ROOT / "docs/runbook/README.md").read_text(encoding="utf-8")
    for rule in alerts:
        page = Path(rule["annotations"]["runbook"])
        headings = re.findall(r"^#+ (.*)", (ROOT / page).read_text(encoding="utf-8"), re.M)
        assert headings == [rule["alert"], *RUNBOOK]
        assert f"[{rule['alert']}]({page.name}) | {rule['labels']['severity']} |" in index
        assert "summary" in rule["annotations"]
        assert rule["labels"]["severity"] in ("page", "ticket")


@pytest.mark.parametrize(
    "series",
    [
        *(f'kafka2011_audit_messages{{verdict="{verdict}"}}' for verdict in ("missing", "extra")),
        'kafka2011_audit_cells{verdict="unknown"}',  # some have no number of messages
        "kafka2011_audit_gaps",
        "kafka2011_audit_unread_ranges_total",
        'kafka2011_consumed_state{verdict=~"missing|extra|unknown"}',  # status 1 of groups validate
        "kafka2011_zookeeper_serving == 0",  # its metrics answer all the same
    ],
)
def test_whatever_is_called_wrong_has_an_alert(series: str) -> None:
    """What makes the audit's exit status 1, what it left out, a ZooKeeper without a quorum."""
    rules = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert any(series in text for text in expressions)


# Counters that the audit keeps in its books: they go on after a restart, and grow before the first
# scrape of an audit that was away.
KEPT = ("kafka2011_audit_unread_ranges_total", "kafka2011_audit_rejected_reports_total")


@pytest.mark.parametrize("counter", KEPT)
def test_an_alert_on_a_counter_that_is_kept_looks_across_a_gap(counter: str) -> None:
    """increase() of a series that was away for longer than its range is 0 whatever was added."""
    rules = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    (expression,) = (text for text in expressions if counter in text)
    assert not re.search(r"\b(increase|rate|delta)\b", expression)
    assert f"min_over_time({counter}[1d])" in expression
    assert f"unless max_over_time({counter}[1d] offset 10m)" in expression, "a new series counts"


def test_grafana_dashboards_are_whole() -> None:
    for path in OPS.glob("grafana/*.json"):
        board = json.loads(path.read_text(encoding="utf-8"))
        assert board["title"]
        assert board["panels"]
        assert [panel["title"] for panel in board["panels"] if not panel["targets"]] == []
