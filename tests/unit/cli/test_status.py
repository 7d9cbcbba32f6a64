"""`kafka2011 status`: what it makes of the process registry and of the groups."""

import json
import socket

import pytest
from prometheus_client import CollectorRegistry

from kafka2011.cli.status import (
    DONE,
    DOWN,
    REGISTERED,
    SERVES,
    STOPPED,
    answers_of,
    as_document,
    lag_bytes,
    link_faults,
    print_groups,
    states_without_answer,
    unowned,
    validated_text,
)
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.tools.cluster_state import GroupPartition, GroupState
from kafka2011.coordination import paths
from kafka2011.coordination.processes import ProcessRecord
from kafka2011.runtime.metrics import MetricsServer
from kafka2011.services.audit.groups import NUMBERED
from kafka2011.services.proxy.faults import Faults
from tests.conftest import Run
from tests.support.commands import held_port
from tests.support.memory_deployment import Deployment

Partition = tuple[str, int | None, int | None]  # owner, offset, end


def group(*partitions: Partition) -> GroupState:
    found = [
        GroupPartition(TopicPartition("page-view", 1, number), owner, offset, end)
        for number, (owner, offset, end) in enumerate(partitions)
    ]
    return GroupState("online", {"online_a": "{}"}, found)


@pytest.mark.parametrize(
    ("partitions", "lag"),
    [
        ([("a", 10, 30), ("a", 5, 5)], 20),
        ([], 0),
        ([("a", 10, 30), ("a", None, 5)], None),
        ([("a", 10, None)], None),
    ],
)
def test_the_lag_is_the_sum_over_partitions_if_each_is_known(
    partitions: list[Partition], lag: int | None
) -> None:
    assert lag_bytes(group(*partitions)) == lag


def test_partitions_without_owner_are_counted() -> None:
    assert unowned(group(("a", 0, 0), ("", 0, 0), ("", 0, 0))) == 2


def test_the_document_says_which_processes_are_alive() -> None:
    broker = ProcessRecord("live", "broker-1", "broker")
    gone = ProcessRecord("live", "mirror-1", "mirror")
    alive = ProcessRecord("live", "broker-1", "broker", "broker-1:9101", "broker-1:8080", 7)
    groups = [("zk:2181", group(("a", 1, 2)))]
    processes = [
        ("live", "broker-1", "broker", True, SERVES, "broker-1:9101", "broker-1:8080"),
        ("live", "mirror-1", "mirror", False, DOWN, None, None),
    ]
    states = {("live", "broker-1"): SERVES, ("live", "mirror-1"): DOWN}
    validated = {("zk:2181", "online"): {"state": "complete"}}
    names = ("datacenter", "name", "kind", "alive", "state", "address", "metrics")
    found = as_document([broker, gone], {("live", "broker-1"): alive}, states, groups, validated)
    assert found == {
        "processes": [dict(zip(names, row, strict=True)) for row in processes],
        "groups": [
            {
                "zookeeper": "zk:2181",
                "group": "online",
                "members": 1,
                "partitions": 1,
                "unowned": 0,
                "lag_bytes": 1,
                "validated": {"state": "complete"},
            }
        ],
    }


def test_a_group_that_could_not_read_all_reports_is_not_just_complete(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The reason was dropped."""
    numbers = dict.fromkeys(NUMBERED, 0)
    row = {"state": "complete", "unread": "live broker 2 is away", **numbers}
    print_groups([("zk:2181", group(("a", 1, 2)))], {("zk:2181", "online"): row})
    said = " ".join(capsys.readouterr().out.split())
    assert said.endswith("complete (at its last look: live broker 2 is away)")
    assert validated_text(row | {"unread": ""}) == "complete"


def test_what_said_goodbye_is_done_or_stopped_and_not_down() -> None:
    expected = [
        ProcessRecord("live", "broker-1", "broker"),
        ProcessRecord("offline", "loader", "loader", said_goodbye=True),
        ProcessRecord("live", "frontend-1", "frontend", said_goodbye=True, has_finished=True),
        ProcessRecord("live", "frontend-2", "frontend"),
        ProcessRecord("live", "frontend-3", "frontend", said_goodbye=True),  # Ctrl-C
    ]
    assert states_without_answer(expected) == {
        ("live", "broker-1"): DOWN,
        ("offline", "loader"): STOPPED,
        ("live", "frontend-1"): DONE,
        ("live", "frontend-2"): DOWN,
        ("live", "frontend-3"): STOPPED,
    }


def test_a_registered_process_is_asked_whether_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs is registered until its session ends: that is not called serving."""
    monkeypatch.setattr("kafka2011.services.embedded.processes.PROBE_TIMEOUT_S", 1.0)
    serving, starting = (
        MetricsServer(
            CollectorRegistry(), lambda is_healthy=healthy: is_healthy, waits_for="its share"
        )
        for healthy in (True, False)
    )
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        metrics = {
            "broker-1": "broker-1:80",  # dialled elsewhere
            "broker-2": starting.address,
            "broker-3": f"127.0.0.1:{hanging.getsockname()[1]}",
            "broker-4": f"127.0.0.1:{held_port()}",  # killed, and its session lives
            "mirror-1": "no-such-host.invalid:80",
            "load": "",
        }
        mapped = {("broker-1", 80): ("127.0.0.1", serving.port)}
        records = [ProcessRecord("live", name, "broker", "", at) for name, at in metrics.items()]
        answers = answers_of(records, lambda published: mapped.get(published, published))
    serving.close()
    starting.close()
    assert {name: answer for (_, name), answer in answers.items()} == {
        "broker-1": ("serves", ""),
        "broker-2": ("not serving", "waits for its share"),
        "broker-3": ("no answer", ""),
        "broker-4": ("down", ""),
        "mirror-1": ("registered", ""),
        "load": ("registered", ""),
    }


def test_a_proxy_that_was_told_to_break_what_it_relays_is_named() -> None:
    """It serves, and so says its /healthz."""
    routes = {
        "zookeeper": Faults(cut=True),
        "broker-1": Faults(cut=True, delay_ms=400),
        "broker-2": Faults(hold=("to_server",)),
        "broker-3": Faults(),
    }
    answer = {"routes": {name: {"faults": faults.as_json()} for name, faults in routes.items()}}
    pages = [json.dumps(each).encode() for each in (answer, {"routes": {"a": {}, "b": 7}}, [])]
    servers = [
        MetricsServer(
            CollectorRegistry(),
            lambda: True,
            routes={"/routes": lambda page=page: (200, "application/json", page)},
        )
        for page in pages
    ]
    records = [
        ProcessRecord("live", f"link-{number}", "proxy", "", server.address)
        for number, server in enumerate(servers)
    ]
    broker = ProcessRecord("live", "broker-1", "broker", "", servers[0].address)
    gone = ProcessRecord("live", "link-9", "proxy", "", "no-such-host.invalid:80")
    states = {(one.datacenter, one.name): SERVES for one in (*records, broker)}
    states["live", "link-9"] = REGISTERED
    said = [*link_faults([*records, broker, gone], states, lambda published: published)]
    for server in servers:
        server.close()
    assert said == [
        "link-0 serves and has faults set on its routes: cut at zookeeper, broker-1; "
        'delay_ms 400 at broker-1; hold ["to_server"] at broker-2'
    ]


def test_what_was_not_forgotten_is_said(deployment: Deployment, run: Run) -> None:
    for name in ("broker-1", "site"):
        deployment.admin.put(paths.process_path("live", name), b"{}")
    deployment.admin.create_ephemeral(paths.process_alive_path("live", "broker-1"), b"{}")
    words = ("status", "--zookeeper", "zk:1", "--forget", "site")
    assert run(*words, "--json").status == 0
    assert not deployment.zookeeper.value(paths.process_path("live", "site"))
    for form in ((), ("--json",)):
        done = run(*words, "--forget", "broker-1", *form)
        assert (done.status, done.err.splitlines()) == (
            1,
            [
                "kafka2011: no process 'site' is expected: nothing to forget",
                "kafka2011: broker-1 is alive, so it was not forgotten",
            ],
        )
        assert "broker-1" in done.out
    assert "did you mean broker-1?" in run("status", "-z", "zk:1", "--forget", "brokr-1").err
