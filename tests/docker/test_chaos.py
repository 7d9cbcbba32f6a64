"""Break each part of the deployment while messages flow; then the audit balances and no group lags.

Every kind of service belongs to every test run, a few of them broken together to save time; every
service times every fault is `make test-chaos` (marker `chaos`).
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
from docker.errors import APIError
from docker.models.containers import Container

from tests.docker.stack import Stack, hold, is_sender, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]

COUNT = 2000
RATE = 200  # so a fault in the middle is in the middle
FAULT_S = 8.0  # longer than a ZooKeeper session of 6 s
SENDER = "sender"  # the frontend that sends meanwhile


# Each fault, and the status and exit codes that it leaves; 143 is a JVM's own word for SIGTERM.
FAULTS = {
    "kill": ("exited", {137}),
    "stop": ("exited", {0, 143}),
    "pause": ("paused", {0}),
    "restart": ("running", {0}),
}


def try_to_pause(container: Container) -> bool:
    """Pause it; False where the engine could not freeze its processes in time, as on a busy
    machine."""
    try:
        container.pause()
    except APIError as error:
        if "unable to freeze" in str(error):
            return False
        raise
    return True


@contextmanager
def broken(container: Container, fault: str) -> Iterator[None]:
    """The container with a fault, and without it again, also where the fault has not come about."""
    container.reload()
    before = container.attrs["State"]["StartedAt"]
    try:
        match fault:
            case "kill":
                container.kill()
                container.wait(timeout=120)
            case "stop":
                container.stop(timeout=120)
            case "pause":
                wait_until(lambda: try_to_pause(container), f"{container.name} is paused")
            case "restart":
                container.restart(timeout=120)
        container.reload()
        state = container.attrs["State"]
        status, codes = FAULTS[fault]
        assert (state["Status"], state["ExitCode"] in codes) == (status, True), f"{fault}: {state}"
        assert (state["StartedAt"] != before) == (fault == "restart")
        yield
    finally:
        container.reload()
        if container.status == "paused":
            container.unpause()
        container.start()  # changes nothing of one that runs


def break_while_sending(
    stack: Stack, *parts: tuple[str, str], faults: Sequence[AbstractContextManager[None]] = ()
) -> None:
    """Send a known number of events, break something meanwhile, and see all of them arrive.

    `parts` are (fault, service); `faults` what else is wrong for as long.
    """
    name = ", ".join(f"{fault} {service}" for fault, service in parts) or "fault"
    stack.wait_until_all_serve()
    before = stack.counted("live")
    sending = stack.send(COUNT, RATE)
    stack.wait_until_counted("live", before + COUNT // 10)
    stack.tell_fault(name)
    with ExitStack() as healing:
        for fault, service in parts:
            container = sending if service == SENDER else stack.container(service)
            healing.enter_context(broken(container, fault))
        for context in faults:
            healing.enter_context(context)
        hold(FAULT_S)
    stack.wait_until_all_serve()
    stack.tell_fault(f"{name}, healed")
    stack.wait_until_sent(sending)
    stack.wait_until_balanced()
    sending.remove(force=True)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(
            [
                ("kill", "broker-2"),
                ("kill", "online-1"),
                ("kill", "spark-worker-1"),
                ("kill", "loader"),
            ],
            id="live and warehouse",
        ),
        pytest.param(
            [
                ("kill", SENDER),
                ("restart", "balancer"),
                ("restart", "spark-master"),
                ("kill", "audit"),
                ("stop", "dashboard"),
            ],
            id="frontend and watching",
        ),
        pytest.param(
            [
                ("kill", "broker-11"),
                ("pause", "mirror-1"),
                ("restart", "zookeeper-live"),
                ("stop", "registry"),
            ],
            id="mirrored and coordination",
        ),
    ],
)
def test_every_kind_of_service_is_broken(stack: Stack, parts: list[tuple[str, str]]) -> None:
    break_while_sending(stack, *parts)


EVERY_SERVICE = (
    "zookeeper-live",
    "zookeeper-offline",
    "broker-1",
    "broker-12",
    "balancer",
    SENDER,
    "wan-link",
    "online-2",
    "mirror-2",
    "audit",
    "loader",
    "spark-master",
    "spark-worker-2",
    "dashboard",
    "registry",
)


@pytest.mark.chaos
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("service", EVERY_SERVICE)
def test_every_service_every_fault(stack: Stack, service: str, fault: str) -> None:
    break_while_sending(stack, (fault, service))


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
        pytest.param("registry", "live", marks=pytest.mark.chaos),
        pytest.param("audit", "live", marks=pytest.mark.chaos),
        pytest.param("loader", "offline", marks=pytest.mark.chaos),
    ],
)
def test_a_network_that_goes_away(stack: Stack, service: str, network: str) -> None:
    break_while_sending(stack, faults=[stack.disconnected(service, network)])


WAN_FAULTS: dict[str, list[dict[str, object]]] = {
    "cut": [{"cut": True}],
    "slow": [{"delay_ms": 100, "jitter_ms": 50, "rate_bytes_s": 375_000}],
    "silent": [{"blackhole": "both"}],
    "flapping": [{"cut": True}, {"cut": False}, {"cut": True}, {"cut": False}, {"cut": True}],
}


@contextmanager
def disturbed(stack: Stack, steps: Sequence[dict[str, object]]) -> Iterator[None]:
    """The link with these faults, one after the other; the last stays until it is mended."""
    try:
        for step in steps[:-1]:
            stack.set_wan(step)
            hold(FAULT_S / len(steps))
        stack.set_wan(steps[-1])
        yield
    finally:
        stack.set_wan({"clear": True})


@pytest.mark.chaos
@pytest.mark.parametrize("fault", WAN_FAULTS)
def test_the_wide_area_link(stack: Stack, fault: str) -> None:
    break_while_sending(stack, faults=[disturbed(stack, WAN_FAULTS[fault])])


def test_the_link_really_is_cut(stack: Stack) -> None:
    """The injector itself: what is sent meanwhile stays in the live datacenter."""
    stack.wait_until_balanced()
    stack.set_wan({"cut": True})
    try:
        stack.tell_fault("wan cut")
        offline = stack.counted("offline")
        stack.wait_until_sent(stack.send(COUNT // 10, RATE))
        stack.wait_until_counted("live", stack.sent_count)
        assert stack.counted("offline") == offline
    finally:
        stack.set_wan({"clear": True})
    stack.wait_until_balanced()


@pytest.mark.chaos
def test_everything_is_killed_and_started_again(stack: Stack) -> None:
    """As after a crash of the engine: no command is given, and it converges on its data."""
    stack.wait_until_balanced()
    stack.tell_fault("everything")
    for service in stack.services:
        if not is_sender(service):
            stack.container(service).kill()
    for service in stack.services:
        if not is_sender(service):
            stack.container(service).start()
    stack.wait_until_all_serve()
    stack.tell_fault("everything, healed")
    stack.wait_until_sent(stack.send(COUNT, RATE))
    stack.wait_until_balanced()
