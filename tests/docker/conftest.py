"""Fixtures of the container tests: the engine, the images, and one deployment a session."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from docker.errors import DockerException
from requests.exceptions import RequestException

import docker
from tests.docker.stack import PROJECT_PREFIX, ROOT, Stack, leftovers, sweep_dead_runs

IMAGES_TIMEOUT_S = 3000
PING_TIMEOUT_S = 20  # an engine may be there and hang
ENGINE_TIMEOUT_S = 300
# What the two frontends of the deployment send before they end: known totals.
RATE = 100
DURATION_MS = 10_000


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The container engine; tests skip where none answers."""
    try:
        docker.from_env(timeout=PING_TIMEOUT_S).ping()
        client = docker.from_env(timeout=ENGINE_TIMEOUT_S)
    except (DockerException, RequestException) as error:
        pytest.skip(f"no container engine: {str(error).splitlines()[0][:120]}")
    # The images of testcontainers' own reaper cannot be had everywhere; the sweep here does it.
    from testcontainers.core.config import testcontainers_config

    testcontainers_config.ryuk_disabled = True
    sweep_dead_runs(client)
    yield client
    client.close()


@pytest.fixture(scope="session")
def images(engine: docker.DockerClient) -> None:
    """The images of this tree."""
    done = subprocess.run(
        [ROOT / "tools" / "images.sh"],
        capture_output=True,
        text=True,
        timeout=IMAGES_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def stack(engine: docker.DockerClient, images: None) -> Iterator[Stack]:
    """The whole deployment, one for all tests; each leaves it whole and balanced."""
    settings = {
        "FRONTEND_RATE": str(RATE),
        "FRONTEND_DURATION_MS": str(DURATION_MS),
        "DASHBOARD_PORT": "0",  # any free one
    }
    found = Stack(engine, f"{PROJECT_PREFIX}{os.getpid()}", settings)
    try:
        found.up()
        found.sent_count = 2 * RATE * DURATION_MS // 1000
        yield found
    finally:
        found.down()
        left = leftovers(engine, found.name)
        assert not left, f"left behind: {left}"
