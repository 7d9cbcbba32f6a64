"""Break each part of the deployment while messages flow; then the audit balances and nobody lags.

One scenario for each kind of service belongs to every test run; every service times every fault is
`make test-chaos` (marker `chaos`).
"""

from collections.abc import Callable

import pytest

from tests.docker.stack import Stack, hold
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]

COUNT = 3000
RATE = 250  # so a fault in the middle is in the middle
FAULT_S = 8.0  # longer than a ZooKeeper session of 6 s


def kill(stack: Stack, service: str) -> None:
    container = stack.container(service)
    container.kill()
    container.wait(timeout=30)
    container.reload()
    assert container.attrs["State"]["ExitCode"] == 137, "the kill really killed"
    hold(FAULT_S)
    container.start()


def stop(stack: Stack, service: str) -> None:
    container = stack.container(service)
    container.stop(timeout=30)
    container.reload()
    # 143: a JVM's own word for SIGTERM.
    assert container.attrs["State"]["ExitCode"] in (0, 143), "SIGTERM is a clean stop"
    hold(FAULT_S)
    container.start()


def pause(stack: Stack, service: str) -> None:
    container = stack.container(service)
    container.pause()
    container.reload()
    assert container.status == "paused"
    hold(FAULT_S)
    container.unpause()


def restart(stack: Stack, service: str) -> None:
    before = stack.container(service).attrs["State"]["StartedAt"]
    container = stack.container(service)
    container.restart(timeout=30)
    container.reload()
    assert container.attrs["State"]["StartedAt"] != before


FAULTS = {"kill": kill, "stop": stop, "pause": pause, "restart": restart}


def break_while_sending(stack: Stack, name: str, fault: Callable[[], None]) -> None:
    """Send a known number of events, break something meanwhile, and see all of them arrive."""
    stack.wait_until_all_serve()
    before = stack.counted("live")
    sending = stack.send(COUNT, RATE)
    wait_until(
        lambda: stack.counted("live") > before + COUNT // 10,
        "the sender's first messages in the live tier",
        timeout_s=90,
    )
    stack.tell_fault(name)
    fault()
    stack.wait_until_all_serve()
    stack.tell_fault(f"{name}, healed")
    wait_until(
        lambda: sending.is_done,
        lambda: f"the sender ends: {sending.container.logs(tail=10).decode(errors='replace')}",
        timeout_s=180,
    )
    stack.wait_until_balanced()
    sending.container.remove(force=True)


@pytest.mark.parametrize(
    ("service", "fault"),
    [
        ("broker-2", "kill"),
        ("broker-11", "kill"),
        ("mirror-1", "pause"),
        ("zookeeper-live", "restart"),
        ("online-1", "kill"),
        ("loader", "kill"),
        ("spark-worker-1", "kill"),
        ("audit", "kill"),
        ("balancer", "restart"),
    ],
)
def test_one_fault_of_each_kind_of_service(stack: Stack, service: str, fault: str) -> None:
    break_while_sending(stack, f"{fault} {service}", lambda: FAULTS[fault](stack, service))


EVERY_SERVICE = (
    "zookeeper-live",
    "zookeeper-offline",
    "broker-1",
    "broker-12",
    "balancer",
    "wan-link",
    "online-2",
    "mirror-2",
    "audit",
    "loader",
    "spark-master",
    "spark-worker-2",
    "dashboard",
)


@pytest.mark.chaos
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("service", EVERY_SERVICE)
def test_every_service_every_fault(stack: Stack, service: str, fault: str) -> None:
    break_while_sending(stack, f"{fault} {service}", lambda: FAULTS[fault](stack, service))


@pytest.mark.chaos
@pytest.mark.parametrize("fault", FAULTS)
def test_a_frontend_that_is_broken_sends_everything_in_the_end(stack: Stack, fault: str) -> None:
    stack.wait_until_all_serve()
    before = stack.counted("live")
    sending = stack.send(COUNT, RATE)
    wait_until(
        lambda: stack.counted("live") > before + COUNT // 10, "the first messages", timeout_s=90
    )
    stack.tell_fault(f"{fault} frontend")
    container = sending.container
    if fault == "kill":
        container.kill()
        container.wait(timeout=30)
        container.start()
    elif fault == "stop":
        container.stop(timeout=30)
        container.start()
    elif fault == "pause":
        container.pause()
        hold(FAULT_S)
        container.unpause()
    else:
        container.restart(timeout=30)
    wait_until(lambda: sending.is_done, "the sender ends", timeout_s=180)
    stack.wait_until_balanced()
    container.remove(force=True)


@pytest.mark.parametrize(
    ("service", "network"),
    [
        pytest.param("wan-link", "wan"),
        pytest.param("broker-1", "live", marks=pytest.mark.chaos),
        pytest.param("broker-12", "offline", marks=pytest.mark.chaos),
        pytest.param("wan-link", "live", marks=pytest.mark.chaos),
        pytest.param("mirror-1", "wan", marks=pytest.mark.chaos),
        pytest.param("mirror-1", "offline", marks=pytest.mark.chaos),
        pytest.param("mirror-1", "shared", marks=pytest.mark.chaos),
        pytest.param("audit", "live", marks=pytest.mark.chaos),
        pytest.param("loader", "offline", marks=pytest.mark.chaos),
    ],
)
def test_a_network_that_goes_away(stack: Stack, service: str, network: str) -> None:
    def cut() -> None:
        with stack.disconnected(service, network):
            hold(FAULT_S)

    break_while_sending(stack, f"{service} without {network}", cut)


WAN_FAULTS: dict[str, list[dict[str, object]]] = {
    "cut": [{"cut": True}],
    "slow": [{"delay_ms": 100, "jitter_ms": 50, "rate_bytes_s": 375_000}],
    "silent": [{"blackhole": "both"}],
    "flapping": [{"cut": True}, {"cut": False}, {"cut": True}, {"cut": False}, {"cut": True}],
}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("cut"),
        pytest.param("slow", marks=pytest.mark.chaos),
        pytest.param("silent", marks=pytest.mark.chaos),
        pytest.param("flapping", marks=pytest.mark.chaos),
    ],
)
def test_the_wide_area_link(stack: Stack, fault: str) -> None:
    def disturb() -> None:
        steps = WAN_FAULTS[fault]
        try:
            for step in steps:
                stack.set_wan(step)
                hold(FAULT_S / len(steps))
        finally:
            stack.set_wan({"clear": True})

    break_while_sending(stack, f"wan {fault}", disturb)


def test_the_link_really_is_cut(stack: Stack) -> None:
    """The injector itself: what is sent meanwhile stays in the live datacenter."""
    stack.wait_until_balanced()
    stack.set_wan({"cut": True})
    try:
        stack.tell_fault("wan cut")
        offline = stack.counted("offline")
        sending = stack.send(COUNT // 10, RATE)
        wait_until(lambda: sending.is_done, "the sender ends", timeout_s=120)
        wait_until(
            lambda: stack.counted("live") >= stack.sent_count, "all in the live tier", timeout_s=60
        )
        assert stack.counted("offline") == offline
    finally:
        stack.set_wan({"clear": True})
    stack.wait_until_balanced()


@pytest.mark.chaos
def test_everything_is_killed_and_started_again(stack: Stack) -> None:
    """As after a crash of the engine: nobody orders anything, and it converges on its data."""
    stack.wait_until_balanced()
    stack.tell_fault("everything")
    for service in stack.services:
        if not service.startswith("frontend"):
            stack.container(service).kill()
    for service in stack.services:
        if not service.startswith("frontend"):
            stack.container(service).start()
    stack.wait_until_all_serve()
    stack.tell_fault("everything, healed")
    sending = stack.send(COUNT, RATE)
    wait_until(lambda: sending.is_done, "the sender ends", timeout_s=180)
    stack.wait_until_balanced()


@pytest.mark.chaos
def test_up_again_on_a_running_deployment_changes_nothing(stack: Stack) -> None:
    before = {name: state.run for name, state in stack.project.states().items()}
    stack.project.compose("up", "--detach", "--no-recreate")
    after = {name: state.run for name, state in stack.project.states().items()}
    changed = {name for name in before if before[name] != after[name]}
    assert not {name for name in changed if not name.startswith("frontend")}
    stack.wait_until_all_serve()
