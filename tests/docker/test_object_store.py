"""The deployment with its tables in the store of profile `object-store`: make test-object-store.

The store is killed and paused, loaders race and are killed, and at last everything is taken down
and comes back with its volumes. Spark's workers share no directory with anything, and need none.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import docker
import pytest

from tests.docker.conftest import (
    ANSWER_TIMEOUT_S,
    IMAGES_TIMEOUT_S,
    brought_up,
    run_tool,
    settings_of_profile,
)
from tests.docker.stack import (
    HARDENED,
    RUN_LABEL,
    SETTINGS,
    START_TIMEOUT_S,
    Stack,
    is_sender,
    project_name,
    wait_until,
)
from tests.docker.test_chaos import COUNT, RATE, break_while_sending, broken

pytestmark = [pytest.mark.docker, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(3600)]

SETTINGS_OF_STORE, PROFILES = settings_of_profile("object-store.env")
TABLES = SETTINGS_OF_STORE["WAREHOUSE_DIR"]
SECRET = secrets.token_hex(20)
SENDINGS_MAX = 10


@pytest.fixture(scope="module")
def stored(engine: docker.DockerClient) -> Iterator[Stack]:
    """A deployment of its own with deploy/docker/object-store.env."""
    assert run_tool("images.sh", timeout_s=IMAGES_TIMEOUT_S) == ""
    assert run_tool("images.sh", "object-store", timeout_s=IMAGES_TIMEOUT_S) == ""
    keys = {"STORE_KEY_ID": secrets.token_hex(10), "STORE_SECRET": SECRET}
    settings = {**SETTINGS_OF_STORE, **keys, **SETTINGS}
    with brought_up(Stack(engine, project_name("store"), settings, PROFILES)) as found:
        yield found


def test_the_tables_are_in_the_store_and_nowhere_else(stored: Stack) -> None:
    stored.wait_until_balanced()
    assert stored.recount() == 0
    # The volume, which the workers have as well: empty.
    assert stored.project.execute("spark-worker-1", "ls", "-A", "/warehouse").strip() == ""
    command = ("kafka2011", "warehouse", "check", TABLES, "--rounds", "20")
    said = stored.project.execute("audit", *command, timeout_s=ANSWER_TIMEOUT_S)
    assert "8 writers raced 20 times, and one won each" in said

    def commits() -> Any:
        url = "http://127.0.0.1:8088/api/snapshot?sections=commits"
        return stored.ask(url, service="dashboard")["sections"]["commits"]

    wait_until(commits, "the dashboard shows the commits")


def test_the_store_is_broken_while_messages_flow(stored: Stack) -> None:
    break_while_sending(stored, ("kill", "object-store"), ("kill", "spark-worker-1"))
    break_while_sending(stored, ("pause", "object-store"), ("kill", "loader"))


@contextmanager
def beside(stored: Stack, service: str, name: str, limit: str, **settings: str) -> Iterator[Any]:
    """One more container of a service, without any volume."""
    model = stored.container(service)
    environment = dict(entry.split("=", 1) for entry in model.attrs["Config"]["Env"])
    container = stored.client.containers.run(
        model.attrs["Config"]["Image"],
        model.attrs["Config"]["Cmd"],
        entrypoint=model.attrs["Config"]["Entrypoint"],
        name=f"{stored.name}-{name}",
        hostname=name,
        environment={**environment, "KAFKA2011_PROCESS_NAME": name, **settings},
        network=f"{stored.name}_offline",
        labels={RUN_LABEL: stored.name},
        detach=True,
        **{
            **HARDENED,
            "tmpfs": {"/tmp": "exec,mode=1777,size=256m"},
            "mem_limit": limit,
            "pids_limit": 512,
        },
    )
    try:
        yield container
    finally:
        container.remove(force=True)


def test_an_executor_needs_no_volume(stored: Stack) -> None:
    def workers_alive() -> Any:
        return stored.ask("http://127.0.0.1:8080/json/", service="spark-master")["aliveworkers"]

    with beside(stored, "spark-worker-1", "bare-worker", "1184m") as bare:
        wait_until(lambda: workers_alive() == 3, lambda: f"a third worker: {bare.logs(tail=5)!r}")
        paths = [mount["Destination"] for mount in bare.attrs["Mounts"] if mount["Type"] != "tmpfs"]
        assert paths == []
        before = stored.counted("warehouse")
        workers = [stored.container(f"spark-worker-{number}") for number in (1, 2)]
        with broken(workers[0], "stop"), broken(workers[1], "stop"):
            sending = stored.send(COUNT, RATE)
            stored.wait_until_sent(sending)
            stored.wait_until_counted("warehouse", before + COUNT)
            sending.remove(force=True)
        stored.wait_until_all_serve()
    stored.wait_until_balanced()
    assert stored.recount() == 0


def test_a_second_loader_races_the_first(stored: Stack) -> None:
    with beside(
        stored, "loader", "second-loader", "768m", KAFKA2011_SPARK_MASTER="local[1]"
    ) as second:
        wait_until(
            lambda: b"loading" in second.logs(), lambda: f"it loads: {second.logs(tail=5)!r}"
        )
        break_while_sending(stored, ("kill", "object-store"))
        for _ in range(SENDINGS_MAX):  # without messages there is nothing to win
            if b"rows=" in second.logs():
                break
            break_while_sending(stored)
        assert b"rows=" in second.logs(), "it has never won a load"
        second.kill()
        break_while_sending(stored)
    assert stored.recount() == 0


def test_everything_is_there_after_down_and_up(stored: Stack) -> None:
    stored.wait_until_balanced()
    services = [service for service in stored.services if not is_sender(service)]
    stored.project.compose("down", "--timeout", "60", profiles=PROFILES)
    up = ("up", "--detach", *services)
    stored.project.compose(*up, profiles=PROFILES, timeout_s=START_TIMEOUT_S)
    stored.wait_until_all_serve()
    stored.wait_until_balanced()
    assert stored.recount() == 0


def test_the_secret_is_in_no_log_and_no_argument(stored: Stack) -> None:
    for service in stored.services:
        container = stored.container(service)
        assert SECRET.encode() not in container.logs(), service
        running = [" ".join(row) for row in container.top(ps_args="-o pid,args")["Processes"]]
        assert SECRET not in json.dumps(running), service
