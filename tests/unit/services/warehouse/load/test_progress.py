"""What the load process reports of itself."""

import math
from typing import Any

import pytest
from prometheus_client import generate_latest

from kafka2011.coordination.cluster import BrokerPartition
from kafka2011.services.warehouse.load.job import LoadOutcome
from kafka2011.services.warehouse.load.lag import Lag
from kafka2011.services.warehouse.load.plan import BROKER_AWAY, GAP, Problem
from kafka2011.services.warehouse.load.progress import Progress

AWAY = Problem("t", BrokerPartition(11, 0), BROKER_AWAY, "its broker 11 is away")
RETIRED = Problem("t", BrokerPartition(11, 0), GAP, "offsets 100 to 500 were retired")


def loaded(rows: int, lag_bytes: int | dict[str, int] = 0, **changed: Any) -> LoadOutcome:
    """The outcome of a load of the topic t, during which nothing came."""
    lags = lag_bytes if isinstance(lag_bytes, dict) else {"t": lag_bytes}
    given = {"rows": {"t": rows}, "versions": {"t": 5}, "quarantined": {"t": 1}}
    return LoadOutcome(
        lag=Lag(lags, looked_ms=900),
        unread_bytes=lags,
        **{**given, "ages": {100: rows}, **changed},  # type: ignore[arg-type]
    )


def test_status_and_metrics_agree() -> None:
    progress = Progress()
    assert progress.status()["latency_ms"]["p99"] is None
    progress.record(loaded(99, lag_bytes=7), 1_000, 0.5)
    progress.record(loaded(1, problems=[AWAY], ages={50_000: 1}), 2_000, 0.5)
    status = progress.status()
    assert (status["rows_loaded"], status["quarantined"], status["lag_bytes"]) == (100, 2, 0)
    assert (status["loads"], status["last_load_ms"]) == (2, 2_000)
    assert status["tables"]["t"] == {"rows": 100, "quarantined": 2, "version": 5, "lag_bytes": 0}
    assert status["problems"] == [AWAY.text]
    latency = status["latency_ms"]
    assert latency["count"] == 100
    assert latency["p50"] == pytest.approx(100, rel=0.02)
    assert latency["max"] == pytest.approx(50_000, rel=0.02)
    sample = progress.registry.get_sample_value
    assert sample("kafka2011_warehouse_rows_total", {"topic": "t"}) == 100
    assert sample("kafka2011_warehouse_problems") == 1


def test_before_the_first_look_at_the_brokers_it_is_not_known_how_much_is_left() -> None:
    """It was 0 for the half minute in which Spark started and the first load ran."""
    progress = Progress()
    status = progress.status()
    assert (status["lag_bytes"], status["lag_looked_ms"]) == (None, None)
    assert "kafka2011_warehouse_lag_bytes{" not in generate_latest(progress.registry).decode()
    progress.record_lag(Lag({"t": 500, "u": 7}, looked_ms=40))  # of the first plan
    status = progress.status()
    assert (status["lag_bytes"], status["lag_looked_ms"]) == (507, 40)
    assert (status["loads"], status["tables"]["t"]["lag_bytes"]) == (0, 500)
    assert (
        progress.registry.get_sample_value("kafka2011_warehouse_lag_bytes", {"topic": "t"}) == 500
    )


def test_a_look_between_loads_changes_the_lag_alone() -> None:
    progress = Progress()
    progress.record(loaded(99, problems=[AWAY]), 1_000, 0.5)
    before = progress.status()
    progress.record_lag(Lag({"t": 30}, looked_ms=3_000))
    table = {**before["tables"]["t"], "lag_bytes": 30}
    changed = {"lag_bytes": 30, "lag_looked_ms": 3_000, "tables": {"t": table}}
    assert progress.status() == {**before, **changed}
    progress.lag_unknown()
    status = progress.status()
    assert (status["lag_bytes"], status["lag_looked_ms"]) == (None, None)
    assert status["problems"] == [AWAY.text]
    sample = progress.registry.get_sample_value
    assert math.isnan(sample("kafka2011_warehouse_lag_bytes", {"topic": "t"}) or 0)


def test_after_a_load_that_failed_it_is_not_known_how_much_is_left() -> None:
    progress = Progress()
    sample = progress.registry.get_sample_value
    progress.record(loaded(99), 1_000, 0.5)
    progress.record_failure("ZooKeeper: it does not answer")
    status = progress.status()
    assert (status["rows_loaded"], status["lag_bytes"]) == (99, None)
    assert status["problems"] == ["ZooKeeper: it does not answer"]
    assert status["tables"]["t"] == {"rows": 99, "quarantined": 1, "version": 5, "lag_bytes": None}
    assert math.isnan(sample("kafka2011_warehouse_lag_bytes", {"topic": "t"}) or 0)
    assert sample("kafka2011_warehouse_problems") == 1
    progress.record(loaded(1, lag_bytes=7), 2_000, 0.5)
    assert progress.status()["lag_bytes"] == 7
    assert sample("kafka2011_warehouse_lag_bytes", {"topic": "t"}) == 7


def test_what_is_left_of_a_topic_whose_table_cannot_be_opened_is_not_known() -> None:
    progress = Progress()
    sample = progress.registry.get_sample_value
    progress.record(loaded(99), 1_000, 0.5)
    damaged = LoadOutcome(lag=Lag({"other": 7}, {"t", "never opened"}), failures=["t: damaged"])
    progress.record(damaged, 2_000, 0.5)
    status = progress.status()
    lags = {topic: table["lag_bytes"] for topic, table in status["tables"].items()}
    assert lags == {"t": None, "never opened": None, "other": 7}
    assert status["lag_bytes"] is None
    for topic in ("t", "never opened"):
        assert math.isnan(sample("kafka2011_warehouse_lag_bytes", {"topic": topic}) or 0)
    assert sample("kafka2011_warehouse_lag_bytes", {"topic": "other"}) == 7
    progress.record(loaded(1, lag_bytes={"t": 0, "never opened": 0, "other": 2}), 3_000, 0.5)
    assert progress.status()["lag_bytes"] == 2
    assert progress.status()["tables"]["t"]["rows"] == 100


def test_a_topic_that_was_deleted_has_nothing_unread() -> None:
    progress = Progress()
    progress.record(loaded(9, {"t": 7, "u": 5}), 1_000, 0.5)
    progress.record(LoadOutcome(lag=Lag({"u": 3}, {"v"})), 2_000, 0.5)
    progress.record(LoadOutcome(lag=Lag({"u": 2})), 3_000, 0.5)
    assert progress.status()["lag_bytes"] == 2
    sample = progress.registry.get_sample_value
    lags = [sample("kafka2011_warehouse_lag_bytes", {"topic": topic}) for topic in "tuv"]
    assert lags == [0, 2, 0]


def test_an_event_of_an_old_log_does_not_break_the_histogram() -> None:
    progress = Progress()
    progress.record(loaded(1, ages={10**15: 1, 0: 3}), 0, 0.1)
    assert progress.status()["latency_ms"]["count"] == 4
