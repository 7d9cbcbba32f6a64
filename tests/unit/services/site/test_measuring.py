"""A round asks every process, says which does not answer, and publishes events that can be read."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kafka2011.coordination import paths
from kafka2011.events import codec
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.events.topics import SERVICE_CALL, SERVICE_METRIC
from kafka2011.protocol.errors import BrokerUnavailable
from kafka2011.runtime.clock import Clock
from kafka2011.runtime.metrics import MetricsServer
from kafka2011.runtime.usage import usage
from kafka2011.services.site.measuring import USAGE, VISITED, Fetched, Meter, fetch
from kafka2011.services.site.operations import BUSY_ROUNDS, Operations
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.waiting import wait_until
from tests.unit.services.site.events import NOW_MS
from tests.unit.services.site.test_readings import reading

PAGE = "page:1"


class Broker:
    """Takes messages, and fails while it is told to."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.is_away = False
        self.closed = 0

    def send(self, topic: str, payload: list[bytes], /) -> None:
        if self.is_away:
            raise BrokerUnavailable("away")
        self.messages += [(topic, each) for each in payload]

    def flush(self, timeout_ms: int, /) -> None:
        pass

    def close(self, timeout_ms: int, /) -> None:
        self.closed += 1


class Deployment:
    """Processes as the registry has them, and their answers."""

    def __init__(self) -> None:
        self.registry = InMemoryRegistry(InMemoryZooKeeper())
        self.registry.start()
        self.answers: dict[tuple[str, str], Fetched] = {}
        self.broker = Broker()
        self.connects = 0

    def add(self, name: str, kind: str, *, alive: bool = True, stopped: bool = False) -> None:
        node = {"kind": kind} | ({"stopped": True} if stopped else {})
        self.registry.put(paths.process_path("live", name), json.dumps(node).encode())
        if alive:
            value = {"address": PAGE, "metrics": f"{name}:1", "pid": 7}
            path = paths.process_alive_path("live", name)
            self.registry.create_ephemeral(path, json.dumps(value).encode())
            body = json.dumps(dict(reading(name, 0).usage)).encode()
            self.answers[f"{name}:1", USAGE] = Fetched(2.0, body, "total;dur=1.5", None)

    def meter(self, clock: Clock = lambda: NOW_MS) -> Meter:
        def connect() -> Any:
            self.connects += 1
            return self.broker

        return Meter(
            [self.registry],
            connect,
            TopicCodec(FORMS_2011),
            name="live/site",
            server="site",
            interval_ms=1000,
            clock=clock,
            request=lambda address, path: self.answers[address, path],
        )


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


def by_process(events: list[tuple[str, Any]]) -> dict[str, float]:
    return {
        event["process"]: event["value"]
        for topic, event in events
        if topic == SERVICE_METRIC and event["name"] == "answers"
    }


def test_a_killed_process_does_not_answer_and_a_stopped_one_is_not_asked(deployment) -> None:
    deployment.add("broker-1", "broker")
    deployment.add("killed", "broker", alive=False)
    deployment.add("done", "frontend", alive=False, stopped=True)
    deployment.add("hangs", "audit")
    deployment.answers["hangs:1", USAGE] = Fetched(1000.0, b"", "", "silent for 1000 ms")
    deployment.add("odd", "audit")
    deployment.answers["odd:1", USAGE] = Fetched(1.0, b"[1]", "", None)
    events = deployment.meter().measure()
    answers = {"live/broker-1": 1, "live/killed": 0, "live/hangs": 0, "live/odd": 0}
    assert by_process(events) == answers
    calls = {event["callee"]: event for topic, event in events if topic == SERVICE_CALL}
    assert calls.keys() == {"live/broker-1", "live/hangs", "live/odd"}
    assert (calls["live/hangs"]["error"], calls["live/hangs"]["took_ms"]) == (
        "silent for 1000 ms",
        1000.0,
    )
    assert calls["live/broker-1"]["served_ms"] == 1.5


def test_the_dashboard_is_asked_as_a_visitor_asks_it(deployment) -> None:
    deployment.add("dashboard", "dashboard")
    timing = 'total;dur=5, call;dur=4;desc="live/site GET /feed", served;dur=1'
    deployment.answers[PAGE, VISITED] = Fetched(6.0, b"{}", timing, None)
    calls = [event for topic, event in deployment.meter().measure() if topic == SERVICE_CALL]
    assert [(each["caller"], each["callee"], each["took_ms"]) for each in calls] == [
        ("live/site", "live/dashboard", 2.0),
        ("live/site", "live/dashboard", 6.0),
        ("live/dashboard", "live/site", 4.0),
    ]
    assert calls[2]["parent"] == calls[1]["span"]


def test_what_is_published_can_be_read_and_has_guids_of_its_own(deployment) -> None:
    deployment.add("broker-1", "broker")
    meter = deployment.meter()
    for _ in range(2):
        meter.publish(meter.measure())
    found = [codec.decode_as(topic, payload) for topic, payload in deployment.broker.messages]
    assert len({each["header"]["guid"] for each in found}) == len(found) == meter.events
    assert {each["header"]["server"] for each in found} == {"site"}


def test_a_cluster_that_is_away_costs_the_events_of_the_round(deployment) -> None:
    deployment.add("broker-1", "broker")
    meter = deployment.meter()
    deployment.broker.is_away = True
    meter.publish(meter.measure())
    assert (meter.events, deployment.broker.closed) == (0, 1)
    lost = meter.lost
    deployment.broker.is_away = False
    meter.publish(meter.measure())
    assert (meter.lost, deployment.connects) == (lost, 2)
    assert meter.events == len(deployment.broker.messages) > 0


def test_paused_it_publishes_nothing_and_has_reported(deployment) -> None:
    deployment.add("broker-1", "broker")
    meter = deployment.meter()
    meter.publish(meter.measure())
    sent = len(deployment.broker.messages)
    meter.switch(is_on=False)
    assert deployment.broker.closed == 1
    meter.publish(meter.measure())
    assert len(deployment.broker.messages) == sent
    meter.switch(is_on=True)
    meter.publish(meter.measure())
    assert len(deployment.broker.messages) > sent


def test_a_zookeeper_that_is_away_leaves_the_processes_known(deployment) -> None:
    deployment.add("broker-1", "broker")
    meter = deployment.meter()
    meter.measure()
    deployment.registry.close()
    assert by_process(meter.measure()) == {"live/broker-1": 1}


def test_a_real_answer_has_its_own_time_and_a_refused_one_an_error() -> None:
    server = MetricsServer(CollectorRegistry(), lambda: True)
    found = fetch(server.address, USAGE)
    assert found.error is None
    assert {"pid", "host", "cpu_s", "machine_network"} <= json.loads(found.body).keys()
    assert float(found.timing.removeprefix("total;dur=")) <= found.took_ms
    assert fetch(server.address, "/none").error == "status 404"
    server.close()
    assert "refused" in str(fetch(server.address, USAGE).error).lower()


def test_a_process_that_keeps_its_core_busy_is_an_alert_until_it_rests(deployment) -> None:
    deployment.add("broker-1", "broker")
    use = Operations()
    clock_ms = NOW_MS
    meter = deployment.meter(lambda: clock_ms)

    def used() -> dict[str, Any]:
        return usage(pid=child.pid)

    def look(found: dict[str, Any]) -> bool:
        body = json.dumps(found).encode()
        deployment.answers["broker-1:1", USAGE] = Fetched(1.0, body, "", None)
        for topic, event in meter.measure():
            use.take(topic, event, clock_ms)
        alerts = use.shown(clock_ms)["alerts"]
        return ("busy", "live/broker-1") in {(each["alert"], each["subject"]) for each in alerts}

    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        used_s = 0.0
        for number in range(BUSY_ROUNDS + 1):
            more_s = used_s + 0.05
            wait_until(lambda more_s=more_s: used()["cpu_s"] > more_s, "work")
            found = used()
            used_s = found["cpu_s"]
            # The clock is the process's own time of the processor: the machine may be in use.
            clock_ms = NOW_MS + round(used_s * 1000)
            assert look(found) is (number == BUSY_ROUNDS)
        os.kill(child.pid, signal.SIGSTOP)
        clock_ms += 3_600_000
        assert look(used()) is False
    finally:
        child.kill()
        child.wait()
    assert [
        (each.fields["is_over"], each.fields["evidence"])
        for each in use.results(clock_ms)
        if each.fields["alert"] == "busy"
    ] == [(is_over, "1.00 cores of the 1 that it can use") for is_over in (False, True)]


@pytest.mark.parametrize(
    "address", ["nohost", "host:", "host:x", "a..b:80", "bad\nhost:80", "\ud800:80", "host:\u00b2"]
)
def test_an_address_that_is_none_is_an_answer_with_an_error(address: str) -> None:
    """Any client can write it into a node; the round of all others went with it."""
    assert fetch(address, USAGE).error


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_s": "much"},
        {"machine_cpu_s": True},
        {"threads": 10**400},
        {"host": None},
        {"machine_network": []},
        {"open_files": ...},  # of another version, which does not say
    ],
)
def test_an_answer_that_is_no_reading_costs_no_other_process_its_measurements(
    deployment: Deployment, change: dict[str, Any]
) -> None:
    deployment.add("broker-1", "broker")
    deployment.add("odd", "broker")
    usage = {**reading("odd", 0).usage, **change}
    body = json.dumps({name: value for name, value in usage.items() if value is not ...}).encode()
    deployment.answers["odd:1", USAGE] = Fetched(2.0, body, "", None)
    meter = deployment.meter()
    for _ in range(2):
        assert by_process(meter.measure()) == {"live/broker-1": 1, "live/odd": 0}


def test_an_event_that_does_not_fit_its_schema_costs_no_other(deployment: Deployment) -> None:
    deployment.add("broker-1", "broker")
    alone = len(deployment.meter().measure())
    odd = json.dumps({"kind": "\ud800"}).encode()  # no text that can be sent
    deployment.registry.put(paths.process_path("live", "odd"), odd)
    meter = deployment.meter()
    meter.publish(meter.measure())
    assert (meter.events, meter.lost) == (alone, 1)
