"""The addresses of a command that names none."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka2011.cli import connections
from kafka2011.cli.event_json import event_formatter
from kafka2011.consumer.chunk import ConsumedMessage
from tests.conftest import Run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(root: Path, pid: int, port: int) -> None:
    """What a supervisor keeps while it runs."""
    (root / "run").mkdir(parents=True)
    zookeeper = {"live": f"127.0.0.1:{port}", "offline": f"127.0.0.1:{port + 1}"}
    registry = f"http://127.0.0.1:{port + 2}"
    document = {"pid": pid, "socket": "s", "zookeeper": zookeeper, "registry": registry}
    (root / "run" / "supervisor.json").write_text(json.dumps(document))


@pytest.mark.parametrize("place", ["", "var", "my-demo", "var/live"])
def test_the_deployment_that_runs_here_is_found(place: str, here: Path) -> None:
    record(here / place, os.getpid(), 2181)
    found = [connections.zookeeper_address(given) for given in ("", "live", "offline", "zk:1/x")]
    assert found == ["127.0.0.1:2181", "127.0.0.1:2181", "127.0.0.1:2182", "zk:1/x"]
    assert connections.zookeeper_address("", "offline") == "127.0.0.1:2182"
    assert connections.found_registry() == "http://127.0.0.1:2183"
    assert connections.deployment_directory() == Path(place)
    assert connections.deployment_directory(Path("given")) == Path("given")


def test_the_forms_of_its_topics_are_those_of_its_processes(here: Path) -> None:
    assert connections.found_event_forms() == ""
    record(here / "var", os.getpid(), 2181)
    assert connections.found_event_forms() == ""
    environment = {"KAFKA2011_EVENT_FORMS": "*:id,sales:json"}
    state = here / "var" / "run" / "audit.json"
    state.write_text(json.dumps({"environment": environment}))
    assert connections.found_event_forms() == "*:id,sales:json"


def test_what_has_ended_or_is_no_record_is_not_taken(here: Path, run: Run) -> None:
    record(here / "var", 2**22 + 1, 2181)  # above every process id
    (here / "other" / "run").mkdir(parents=True)
    for text in ("", "[]", "{}", f'{{"pid": {os.getpid()}, "zookeeper": []}}'):
        (here / "other" / "run" / "supervisor.json").write_text(text)
        assert connections.found_zookeeper() == connections.found_registry() == ""
        assert connections.deployment_directory() == Path("var")
        line = "kafka2011: no deployment runs in this directory: give --zookeeper HOST:PORT\n"
        assert run("topics", "list") == (2, "", line)


def test_of_two_deployments_one_must_be_named(here: Path, refused: Callable[..., str]) -> None:
    for number, place in enumerate(("var", "other")):
        record(here / place, os.getpid(), 2181 + 10 * number)
    line = refused(connections.zookeeper_address, "")
    assert (
        line == "kafka2011: several deployments run here (other, var): give --zookeeper HOST:PORT"
    )


def test_events_are_decoded_by_the_registry_that_runs_here(here: Path) -> None:
    record(here / "var", os.getpid(), 1)  # nothing listens on port 3
    message = ConsumedMessage(b"\0\0\0\0\1x", "page-view", 1, 0, 9)
    assert b"127.0.0.1:3" in event_formatter({}, b"")(message)
