"""What the demo in containers makes of what the engine says."""

from services.containers.demo import RestartWatch, moment_of
from services.containers.engine import ContainerState

FRONTENDS = {"frontend-1"}
EXPECTED = {"broker-1", "frontend-1"}


def state(
    service: str, status: str = "running", health: str = "healthy", code: int = 0, run: str = "1"
) -> tuple[str, ContainerState]:
    return service, ContainerState(service, f"id-{service}", status, code, health, run)


def test_all_serve_and_the_frontend_still_sends() -> None:
    moment = moment_of(dict([state("broker-1"), state("frontend-1")]), EXPECTED, FRONTENDS)
    assert moment == (False, ())


def test_a_frontend_that_ended_well_has_sent_everything() -> None:
    states = dict([state("broker-1"), state("frontend-1", "exited", "unhealthy")])
    assert moment_of(states, EXPECTED, FRONTENDS) == (True, ())


def test_a_frontend_that_ended_badly_is_down() -> None:
    states = dict([state("broker-1"), state("frontend-1", "exited", "unhealthy", code=1)])
    assert moment_of(states, EXPECTED, FRONTENDS) == (False, ("frontend-1",))


def test_what_does_not_serve_is_down_whatever_the_reason() -> None:
    for other in (
        state("broker-1", "paused"),
        state("broker-1", health="unhealthy"),
        state("broker-1", "exited"),
        state("another"),
    ):
        states = dict([other, state("frontend-1", "exited")])
        assert moment_of(states, EXPECTED, FRONTENDS) == (True, ("broker-1",)), other


def test_a_restart_is_noticed_once() -> None:
    watch = RestartWatch(clock=lambda: 1000)
    assert not watch.look(dict([state("broker-1", run="1")]))
    assert not watch.look(dict([state("broker-1", "exited", run="1")]))
    assert watch.look(dict([state("broker-1", run="2")]))
    assert not watch.look(dict([state("broker-1", run="2")]))
    assert watch.restarts == [{"name": "broker-1", "time_ms": 1000}]
    assert watch.names == ["broker-1"]


def test_a_first_start_is_no_restart() -> None:
    watch = RestartWatch(clock=lambda: 1000)
    assert not watch.look({})
    assert not watch.look(dict([state("frontend-1")]))
    assert watch.names == []
