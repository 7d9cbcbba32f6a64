"""The deployment as a whole: known totals in every tier, and what containers may and may not."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.docker.stack import Stack, is_sender

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]


def test_compose_up_loses_nothing_and_repeats_nothing(stack: Stack) -> None:
    """Known totals in every tier, counted from what was read there, never from the producers'
    numbers; and a recount by guid."""
    tiers = stack.wait_until_balanced()["tiers"]
    for tier in ("live", "offline", "warehouse"):
        found = {name: tiers[tier][name] for name in ("missing", "extra", "count")}
        assert found == {"missing": 0, "extra": 0, "count": tiers["live"]["count"]}, tier
    assert tiers["warehouse"]["count"] >= stack.sent_count
    assert stack.recount() == 0


def test_make_up_changes_nothing_of_what_compose_up_started(stack: Stack) -> None:
    before = {name: state.run for name, state in stack.project.states().items()}
    stack.make_up()
    after = {name: state.run for name, state in stack.project.states().items()}
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert not {name for name in changed if not is_sender(name)}


def test_every_process_is_registered_and_serves(stack: Stack) -> None:
    command = "kafka2011 status --json --zookeeper zookeeper-live:2181"
    command += " --zookeeper zookeeper-offline:2181"
    found = json.loads(stack.project.execute("audit", *command.split()))["processes"]
    processes = {process["name"]: process for process in found}
    expected = {"broker-1", "broker-2", "broker-3", "broker-11", "broker-12", "wan-link"}
    expected |= {
        "mirror-1",
        "mirror-2",
        "online-1",
        "online-2",
        "site",
        "audit",
        "loader",
        "dashboard",
    }
    for name in expected | {"registry"}:
        assert processes[name]["alive"], name
        assert processes[name]["metrics"] == f"{name}:8080"
        assert (processes[name]["address"] or name).startswith(name), "others can dial it"


def test_containers_run_without_rights(stack: Stack) -> None:
    for service in stack.services:
        attributes = stack.container(service).attrs
        host = attributes["HostConfig"]
        assert (host["ReadonlyRootfs"], host["Privileged"]) == (True, False), service
        assert (host["CapDrop"], host["CapAdd"] or []) == (["ALL"], []), service
        assert all(host[limit] for limit in ("Memory", "NanoCpus", "PidsLimit")), service
        assert attributes["Config"]["User"] == "10001:10001", service
        bound = [b for ports in (host["PortBindings"] or {}).values() for b in ports]
        assert {binding["HostIp"] for binding in bound} <= {"127.0.0.1"}, service


def test_nothing_in_the_live_datacenter_reaches_the_offline_one(stack: Stack) -> None:
    reach = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"
    probe = f"python3 -c '{reach}' {{}} 2>/dev/null && echo reached || echo not"
    expected = {
        ("broker-1", "broker-2 9102"): "reached",
        ("broker-1", "broker-11 9111"): "not",
        ("broker-11", "broker-1 9101"): "not",
        ("mirror-1", "broker-11 9111"): "reached",
        ("mirror-1", "broker-1 9101"): "reached",  # by the wide-area link
        ("mirror-1", "live-broker-1 9101"): "not",
    }

    def answer(way: tuple[str, str]) -> str:
        service, target = way
        return stack.project.execute(service, "sh", "-c", probe.format(target)).strip()

    # Together: a machine's name server may take seconds to say that it knows no such name.
    with ThreadPoolExecutor(len(expected)) as probes:
        assert dict(zip(expected, probes.map(answer, expected), strict=True)) == expected


def test_images_have_the_compiled_loops_and_neither_compiler_nor_pip(stack: Stack) -> None:
    assert stack.container("broker-1").image.attrs["Size"] < 200_000_000
    assert "compiled" in stack.project.execute("broker-1", "kafka2011", "version")
    search = "command -v gcc cc pip pip3 || echo nothing"
    for service in ("broker-1", "loader", "balancer"):
        assert stack.project.execute(service, "sh", "-c", search).strip() == "nothing", service
