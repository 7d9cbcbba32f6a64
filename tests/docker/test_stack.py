"""The deployment as a whole: known totals in every tier, and what containers may and may not."""

import json

import pytest

from tests.docker.stack import RECOUNT_TIMEOUT_S, Stack

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]


def test_known_totals_arrive_in_every_tier(stack: Stack) -> None:
    summary = stack.wait_until_balanced()
    assert summary["produced"] == stack.sent_count
    for tier in ("live", "offline", "warehouse"):
        assert summary["tiers"][tier]["missing"] == 0, tier
    # Counted from what was read there, never from the producers' numbers.
    assert summary["tiers"]["warehouse"]["count"] >= stack.sent_count


def test_a_recount_by_guid_finds_every_message(stack: Stack) -> None:
    stack.wait_until_balanced()
    text = stack.project.execute(
        "audit", "kafka2011", "audit", "--var", "/data", "--url", "http://127.0.0.1:8080",
        "--recount", "--final", "--json", timeout_s=RECOUNT_TIMEOUT_S,
    )  # fmt: skip
    assert json.loads(text)["exit_status"] == 0


def test_every_process_is_registered_and_serves(stack: Stack) -> None:
    text = stack.project.execute(
        "audit",
        "kafka2011",
        "status",
        "--zookeeper",
        "zookeeper-live:2181",
        "--zookeeper",
        "zookeeper-offline:2181",
        "--json",
    )
    processes = {process["name"]: process for process in json.loads(text)["processes"]}
    expected = {"broker-1", "broker-2", "broker-3", "broker-11", "broker-12", "wan-link"}
    expected |= {"mirror-1", "mirror-2", "online-1", "online-2", "audit", "loader", "dashboard"}
    expected |= {"registry"}
    assert expected <= set(processes)
    for name in expected:
        assert processes[name]["alive"], name
        assert processes[name]["metrics"] == f"{name}:8080"
        assert (processes[name]["address"] or name).startswith(name), "others can dial it"


def test_containers_run_without_rights(stack: Stack) -> None:
    for service in stack.services:
        attributes = stack.container(service).attrs
        host = attributes["HostConfig"]
        assert host["ReadonlyRootfs"], service
        assert host["CapDrop"] == ["ALL"], service
        assert not host["Privileged"], service
        assert not host["CapAdd"], service
        assert host["Memory"], service
        assert host["NanoCpus"], service
        assert host["PidsLimit"], service
        assert attributes["Config"]["User"] == "10001:10001", service
        bound = [b for ports in (host["PortBindings"] or {}).values() for b in ports]
        assert {binding["HostIp"] for binding in bound} <= {"127.0.0.1"}, service


def test_nobody_in_the_live_datacenter_reaches_the_offline_one(stack: Stack) -> None:
    reach = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"
    probe = f"python3 -c '{reach}' {{}} 2>/dev/null && echo reached || echo not"
    for service, target, expected in (
        ("broker-1", "broker-2 9102", "reached"),
        ("broker-1", "broker-11 9111", "not"),
        ("broker-11", "broker-1 9101", "not"),
        ("mirror-1", "broker-11 9111", "reached"),
        ("mirror-1", "broker-1 9101", "reached"),  # by the wide-area link
        ("mirror-1", "live-broker-1 9101", "not"),
    ):
        answer = stack.project.execute(service, "sh", "-c", probe.format(target)).strip()
        assert answer == expected, f"{service} to {target}"


def test_the_compiled_loops_are_in_the_image(stack: Stack) -> None:
    assert "compiled" in stack.project.execute("broker-1", "kafka2011", "version")


def test_no_image_that_runs_has_a_compiler_or_pip(stack: Stack) -> None:
    for service in ("broker-1", "loader", "balancer"):
        text = stack.project.execute(
            service, "sh", "-c", "command -v gcc cc pip pip3 || echo nothing"
        )
        assert text.strip() == "nothing", service
