"""deploy/tools/preflight.sh prints one line about what is missing, before anything is started."""

import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.commands import execute
from tests.unit.services.containers.conftest import executable

TOOLS = ("sh", "timeout", "id", "awk", "sed", "sort", "tail", "dirname", "stat")

# An engine and Compose v2, as far as the preflight uses them.
DOCKER = """
case "$1 $2" in
    "info "*) [ -n "$FACTS" ] && echo "$FACTS" ;;
    "compose version") [ -n "$HAS_COMPOSE" ] ;;
    "compose config")
        [ -z "$BROKEN" ] || { echo "$BROKEN" >&2; exit 15; }
        echo "        published: \\"${PORT:-0}\\"" ;;
    "ps --quiet") [ -z "$RUNNING" ] || echo 0123456789ab ;;
    "ps --filter") echo somebodys_web_1 ;;
esac
"""
ENGINE = {
    "ENGINE_SOCKET": "/nowhere.sock",
    "FACTS": "6710886400 2 linux /nowhere",
    "HAS_COMPOSE": "yes",
}


class Machine:
    """An engine, and nothing else on the PATH but what the preflight needs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        paths = {name: shutil.which(name) for name in TOOLS} | {"python3": sys.executable}
        for name, path in paths.items():
            # Not links: Python finds its library by its own place.
            executable(root / "bin" / name, f'exec "{path}" "$@"')
        executable(root / "bin/docker", DOCKER)

    def preflight(self, *words: str, **settings: str) -> str:
        """The one line of what is missing, empty when nothing is. `settings` are variables, and
        what differs from `ENGINE`."""
        variables = {**ENGINE, "PATH": f"{self.root}/bin", **settings}
        tool = ROOT / "deploy/tools/preflight.sh"
        done = execute([tool, *words], status=None, variables=variables)
        assert done.stdout == ""
        if done.returncode == 0:
            assert done.stderr == ""
            return ""
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("kafka2011: ")
        return line


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_prints_nothing_where_nothing_is_missing(machine: Machine) -> None:
    assert machine.preflight() == ""


def test_without_a_docker_command_it_names_the_demo_that_needs_none(machine: Machine) -> None:
    (machine.root / "bin/docker").unlink()
    line = machine.preflight()
    assert "the docker command is not installed" in line
    assert "make demo" in line


@pytest.mark.parametrize(
    ("words", "engine", "reason"),
    [
        ([], {"FACTS": ""}, "no container engine answers"),
        ([], {"HAS_COMPOSE": ""}, "no Compose"),
        (["--engine-only"], {"HAS_COMPOSE": ""}, "no Compose"),
        ([], {"FACTS": "6710886399 2 linux /nowhere"}, "has 6399 MiB of memory; 6400 MiB"),
        ([], {"FACTS": "16000000000 2 windows /nowhere"}, "windows"),
        ([], {"BROKEN": "cpus is no number"}, "cannot be read: cpus is no number"),
    ],
)
def test_what_is_missing_is_one_line(
    machine: Machine, words: list[str], engine: dict[str, str], reason: str
) -> None:
    assert reason in machine.preflight(*words, **engine)


def test_a_port_that_is_taken(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = machine.preflight(PORT=port)
        assert f"port {port} of 127.0.0.1 is taken by somebodys_web_1;" in line
        assert ".env" in line
        # The demo chooses another port, unless this one is set.
        assert machine.preflight("--demo", PORT=port) == ""
        assert machine.preflight("--demo", PORT=port, DASHBOARD_PORT=port) == line
        # The deployment itself may hold it.
        assert machine.preflight(PORT=port, RUNNING="yes") == ""


@pytest.mark.parametrize(
    ("named", "mode", "reason"),
    [
        ("{}/access.log", 0o644, ""),
        ("/dev/null", None, "needs FRONTEND_INPUT"),
        ("access.log", None, "an absolute path or ./access.log"),
        ("./nowhere.log", None, "no such file"),
        ("{}", None, "no such file"),
        ("{}/a:b", None, "colon"),
        ("{}/access.log", 0o640, "chmod o+r"),
    ],
)
def test_the_access_log_must_be_one_that_a_container_can_read(
    machine: Machine, named: str, mode: int | None, reason: str
) -> None:
    if mode is not None:
        log = machine.root / "access.log"
        log.touch()
        log.chmod(mode)
    path = named.format(machine.root)
    line = machine.preflight(FRONTEND_SOURCE="access-log", FRONTEND_INPUT=path)
    assert reason in line
    assert bool(reason) == bool(line)


@pytest.mark.parametrize(("mode", "is_fine"), [(0o660, True), (0o640, False), (None, False)])
def test_chaos_needs_a_socket_that_its_group_may_use(
    machine: Machine, mode: int | None, is_fine: bool
) -> None:
    path = machine.root / "engine.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        if mode is not None:
            engine.bind(str(path))
            path.chmod(mode)
        line = machine.preflight("--chaos", ENGINE_SOCKET=str(path))
    assert (line == "") == is_fine
    assert is_fine or (str(path) in line and "CHAOS=on" in line)
