"""deploy/tools/preflight.sh prints one line about what is missing, before anything is started."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

ENOUGH = "16000000000 2 linux /nowhere"

TOOLS = ("sh", "timeout", "id", "df", "awk", "sed", "sort", "tail", "dirname", "stat", "python3")

# An engine and Compose v2, as far as the preflight uses them.
DOCKER = """#!/bin/sh
case "$1 $2" in
    "info "*) [ -n "{facts}" ] && echo "{facts}" ;;
    "compose version") [ -n "{compose}" ] ;;
    "compose config")
        [ -z "{broken}" ] || {{ echo "{broken}" >&2; exit 15; }}
        echo '        published: "{port}"' ;;
    "ps --quiet") [ -z "{running}" ] || echo 0123456789ab ;;
    "ps --filter") echo somebodys_web_1 ;;
esac
"""


def preflight(
    bin_dir: Path,
    *words: str,
    facts: str = ENOUGH,
    compose: str = "yes",
    port: int = 0,
    running: str = "",
    broken: str = "",
    has_docker: bool = True,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """Run it with an engine as described and nothing else of the kind on the PATH."""
    bin_dir.mkdir(exist_ok=True)
    found = {name: shutil.which(name) for name in TOOLS} | {"python3": sys.executable}
    # Not links: Python finds its library by its own place.
    commands = {name: f'#!/bin/sh\nexec "{path}" "$@"\n' for name, path in found.items()}
    if has_docker:
        commands["docker"] = DOCKER.format(
            facts=facts, compose=compose, port=port, running=running, broken=broken
        )
    for name, text in commands.items():
        (bin_dir / name).write_text(text)
        (bin_dir / name).chmod(0o755)
    hidden = {"DASHBOARD_PORT", "FRONTEND_INPUT", "FRONTEND_SOURCE"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [ROOT / "deploy/tools/preflight.sh", *words],
        env={**environment, "PATH": str(bin_dir), "ENGINE_SOCKET": "/nowhere.sock", **settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that it prints."""
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("kafka2011: ")
    return line


def test_it_prints_nothing_where_nothing_is_missing(tmp_path: Path) -> None:
    done = preflight(tmp_path / "bin")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("machine", "words", "reasons"),
    [
        ({"has_docker": False}, (), ["the docker command is not installed", "make demo"]),
        ({"facts": ""}, (), ["no container engine answers"]),
        ({"compose": ""}, (), ["no Compose"]),
        ({"compose": ""}, ("--engine-only",), ["no Compose"]),
        ({"facts": "4000000000 2 linux /nowhere"}, (), ["has 4000 MB of memory; 6000 MB"]),
        ({"facts": "16000000000 2 windows /nowhere"}, (), ["windows"]),
        ({"broken": "cpus is no number"}, (), ["cannot be read: cpus is no number"]),
    ],
)
def test_what_is_missing_is_one_line(
    tmp_path: Path, machine: dict[str, Any], words: tuple[str, ...], reasons: list[str]
) -> None:
    line = complaint(preflight(tmp_path / "bin", *words, **machine))
    assert [reason for reason in reasons if reason not in line] == []


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = complaint(preflight(tmp_path / "bin", port=port))
        assert f"port {port} of 127.0.0.1 is taken by somebodys_web_1;" in line
        assert ".env" in line
        # The demo chooses another port, unless this one is set.
        assert preflight(tmp_path / "bin", "--demo", port=port).returncode == 0
        asked = preflight(tmp_path / "bin", "--demo", port=port, DASHBOARD_PORT=str(port))
        assert complaint(asked) == line


def test_a_port_that_the_deployment_itself_holds_is_fine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = preflight(tmp_path / "bin", port=taken.getsockname()[1], running="yes")
    assert done.returncode == 0, done.stderr


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
    tmp_path: Path, named: str, mode: int | None, reason: str
) -> None:
    if mode is not None:
        (tmp_path / "access.log").touch(mode)
        (tmp_path / "access.log").chmod(mode)
    path = named.format(tmp_path)
    done = preflight(tmp_path / "bin", FRONTEND_SOURCE="access-log", FRONTEND_INPUT=path, port=0)
    if reason:
        assert reason in complaint(done)
    else:
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("mode", "is_fine"), [(0o660, True), (0o640, False), (None, False)])
def test_chaos_needs_a_socket_that_its_group_may_use(
    tmp_path: Path, mode: int | None, is_fine: bool
) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        if mode is not None:
            engine.bind(str(path))
            path.chmod(mode)
        done = preflight(tmp_path / "bin", "--chaos", ENGINE_SOCKET=str(path))
    if is_fine:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert str(path) in complaint(done)
        assert "CHAOS=on" in done.stderr
