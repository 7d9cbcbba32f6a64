"""The Makefile's targets for containers, and the scripts behind them.

The `docker` here only records its calls.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT

SETTINGS = ("COMPOSE_PROJECT_NAME", "COMPOSE_PROFILES", "DASHBOARD_PORT", "ZK_LIVE", "MAKEFLAGS")

# Records how Compose was called, and has two containers, of which frontend-1's starts last.
DOCKER = """#!/bin/sh
case "$*" in
    "compose version"*) ;;
    compose*) echo "$COMPOSE_PROJECT_NAME|$COMPOSE_PROFILES|$ZK_LIVE|$*" >> "$0.calls" ;;
    *"label=com.docker.compose.project=$CREATED "*start=last*Label*) echo frontend-1 ;;
    *"label=com.docker.compose.project=$CREATED "*Label*) echo broker-1; echo frontend-1 ;;
esac
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of what the targets need, without images to build."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    for name in ("Makefile", "docker-compose.yml", ".env"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin/docker", DOCKER)
    for name in ("images.sh", "preflight.sh"):
        executable(tmp_path / "deploy/tools" / name, "#!/bin/sh\n")
    return tmp_path


def executable(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def run(tree: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In the tree, without the settings of the shell that runs the tests."""
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return subprocess.run(
        words,
        cwd=tree,
        env={**inherited, "PATH": f"{tree}/bin:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def calls(tree: Path) -> list[list[str]]:
    """Project, profiles, ZK_LIVE and words of each call of Compose."""
    lines = (tree / "bin/docker.calls").read_text(encoding="utf-8").splitlines()
    return [line.split("|") for line in lines]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("PORT=8090", "8090"),
        ('PORT="8090"', "8090"),
        ("PORT='8090' # mine", "8090"),
        ("export PORT=8090 # mine", "8090"),
        ("PORT=8090\r", "8090"),
        ("PORT=1\nPORT=8090", "8090"),
        ("#PORT=1", "8088"),
        ("PORTS=1", "8088"),
        ("PORT=", "8088"),
    ],
)
def test_a_setting_is_read_as_compose_reads_it(tree: Path, line: str, value: str) -> None:
    (tree / ".env").write_text(f"A=1\n{line}\nB=2\n", encoding="utf-8", newline="")
    assert run(tree, "deploy/tools/setting.sh", "PORT", "8088").stdout == f"{value}\n"
    assert run(tree, "deploy/tools/setting.sh", "PORT", "8088", PORT="9").stdout == "9\n"


def test_a_setting_without_env_file_is_its_default(tree: Path) -> None:
    (tree / ".env").unlink()
    assert run(tree, "deploy/tools/setting.sh", "PORT", "8088").stdout == "8088\n"


@pytest.mark.parametrize("words", [(), ("HA=1",)])
def test_what_is_in_env_holds_with_three_zookeepers_too(tree: Path, words: tuple[str, ...]) -> None:
    (tree / ".env").write_text(
        "COMPOSE_PROJECT_NAME=foo\nDASHBOARD_PORT=8090\nCOMPOSE_PROFILES=load\n", encoding="utf-8"
    )
    done = run(tree, "make", "up", *words, CREATED="foo")
    assert done.returncode == 0, done.stderr
    assert "http://127.0.0.1:8090 " in done.stderr
    assert "==> starting 2 containers" in done.stderr
    made = calls(tree)
    assert {call[0] for call in made} == {"foo"}
    assert {call[1] for call in made} == ({"load,ha"} if words else {""})
    assert {call[2].count(":2181") for call in made} == ({3} if words else {0})
    # The file is read by Compose itself: nothing may replace it.
    assert not any("--env-file" in call[3] for call in made)
    assert [call[3].split()[-1] for call in made] == [
        "--remove-orphans",
        "broker-1",
        "--no-recreate",
    ]


def test_a_project_without_containers_is_an_error(tree: Path) -> None:
    done = run(tree, "deploy/tools/up.sh", "foo", CREATED="bar")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("kafka2011: Compose made no container of the project foo;")


# A broker that runs, and a frontend as `docker kill` left it.
KILLED = """#!/bin/sh
case "$*" in
    *health=*|*status=created*|*status=restarting*) ;;
    ps*start=last*) echo killed ;;
    ps*status=exited*) echo killed ;;
    ps*) echo runs ;;
    inspect*ExitCode*) echo 137 ;;
    inspect*) echo frontend-1 ;;
esac
"""


def test_what_starts_later_may_lie_there_killed_until_then(tree: Path) -> None:
    executable(tree / "bin/docker", KILLED)
    first = run(tree, "deploy/tools/await-healthy.sh", "foo", "kafka2011.start=last")
    assert first.returncode == 0
    assert first.stderr.startswith("1 containers serve after")
    last = run(tree, "deploy/tools/await-healthy.sh", "foo")
    assert last.returncode == 1
    assert "kafka2011: frontend-1 ended with status 137" in last.stderr


def test_the_images_are_those_that_the_settings_name() -> None:
    """The whole script needs an engine; what it starts from does not."""
    text = (ROOT / "deploy/tools/images.sh").read_text(encoding="utf-8")
    assert "VERSION=$(deploy/tools/setting.sh KAFKA2011_VERSION dev)" in text


def test_the_demos_project_can_be_taken_down_by_its_name(tree: Path) -> None:
    done = run(tree, "make", "down", COMPOSE_PROJECT_NAME="kafka2011-demo")
    assert done.returncode == 0, done.stderr
    ((project, profiles, _, words),) = calls(tree)
    assert project == "kafka2011-demo"
    assert {"jobs", "ha", "two-live"} <= set(profiles.split(","))
    assert words == "compose down --remove-orphans --volumes"
