"""Fixtures of the container tests: the engine, the images, and one deployment a session."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import docker
import pytest

from tests.docker.stack import ROOT, SETTINGS, Stack, made_of, project_name, sweep_dead_runs

IMAGES_TIMEOUT_S = 3000
ANSWER_TIMEOUT_S = 120  # an engine may be there and hang
ENGINE_TIMEOUT_S = 300


def run_tool(name: str, *words: str, timeout_s: float) -> str:
    """Run a script of deploy/tools; what it complains about, empty when it succeeds."""
    done = subprocess.run(
        [ROOT / "deploy/tools" / name, *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return (done.stderr.strip() or f"{name} failed") if done.returncode else ""


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The container engine; tests skip where none answers."""
    # Checked by its own command: the library leaks sockets when there is no answer.
    missing = run_tool("preflight.sh", "--engine-only", timeout_s=ANSWER_TIMEOUT_S)
    if missing:
        pytest.skip(missing.removeprefix("kafka2011: "))
    client = docker.from_env(timeout=ENGINE_TIMEOUT_S)
    # The images of testcontainers' own reaper cannot be had everywhere; the sweep here does it.
    from testcontainers.core.config import testcontainers_config

    testcontainers_config.ryuk_disabled = True
    # As Ctrl-C: fixtures take down what they made (deploy/tools/test-containers.sh).
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sweep_dead_runs(client)
    yield client
    client.close()


@pytest.fixture(scope="session")
def images(engine: docker.DockerClient) -> None:
    """The images of this tree."""
    assert run_tool("images.sh", timeout_s=IMAGES_TIMEOUT_S) == ""


def settings_of_profile(name: str) -> tuple[dict[str, str], str]:
    """The variables in a file of deploy/docker, and the profile."""
    lines = (ROOT / "deploy/docker" / name).read_text(encoding="utf-8").splitlines()
    settings = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    return settings, settings.pop("COMPOSE_PROFILES")


@contextmanager
def brought_up(found: Stack) -> Iterator[Stack]:
    """The deployment, from clean to nothing left."""
    try:
        found.up()
        yield found
    finally:
        found.down()
        left = [thing.name for thing in made_of(found.client, found.name)]
        assert not left, f"left behind: {left}"


@pytest.fixture(scope="session")
def stack(engine: docker.DockerClient, images: None) -> Iterator[Stack]:
    """The whole deployment, one for all tests; each leaves it whole and balanced."""
    with brought_up(Stack(engine, project_name())) as found:
        yield found


@pytest.fixture(scope="module")
def three_zookeepers(engine: docker.DockerClient, images: None) -> Iterator[Stack]:
    """A deployment of its own with deploy/docker/ha.env."""
    settings, profiles = settings_of_profile("ha.env")
    with brought_up(Stack(engine, project_name("ha"), {**settings, **SETTINGS}, profiles)) as found:
        yield found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deployments of their own go first: two at once are more than two cores bear. Then what the
    start of the other is to leave, before anything of it is broken."""
    own = {"three_zookeepers", "replicas", "stored"}
    items.sort(
        key=lambda item: (
            not own & set(getattr(item, "fixturenames", ())),
            item.path.stem != "test_stack",
        )
    )
