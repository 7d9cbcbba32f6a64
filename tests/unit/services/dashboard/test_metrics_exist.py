"""Every metric that the dashboard, the alerts and Grafana name exists in the processes' code."""

import functools
import json
import re

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


def is_there(name: str, known: set[str]) -> bool:
    stems = {name, *(name.removesuffix(suffix) for suffix in SUFFIXES)}
    return bool(stems & known) or f"{name}_total" in known


def named_in_ops() -> list[tuple[str, str]]:
    found = []
    for path in sorted([*OPS.glob("*.yml"), *OPS.glob("grafana/*.json")]):
        names = set(NAME.findall(path.read_text(encoding="utf-8")))
        found += [(path.name, name) for name in sorted(names)]
    return found


@pytest.mark.parametrize("name", METRICS)
def test_what_the_dashboard_reads_exists(name: str) -> None:
    assert is_there(name, names_in_code())


def test_what_ops_names_exists() -> None:
    known = names_in_code()
    assert named_in_ops()
    assert [pair for pair in named_in_ops() if not is_there(pair[1], known)] == []


def test_a_metric_that_is_not_there_would_be_found() -> None:
    assert not is_there("kafka2011_broker_nonsense_total", names_in_code())


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((OPS / "alerts.yml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "dashboard.md").read_text(encoding="utf-8")
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) >= 8
    for rule in alerts:
        link = rule["annotations"]["runbook"]
        assert link.startswith("docs/dashboard.md#")
        anchor = link.partition("#")[2]
        headings = [
            re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in page.splitlines()
            if line.startswith("#")
        ]
        assert anchor in headings, link
        assert {"summary", "runbook"} <= set(rule["annotations"])
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_grafana_dashboards_are_whole() -> None:
    for path in OPS.glob("grafana/*.json"):
        board = json.loads(path.read_text(encoding="utf-8"))
        assert board["title"]
        assert board["panels"]
        for panel in board["panels"]:
            assert panel["targets"], panel["title"]
