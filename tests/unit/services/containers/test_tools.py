"""The Makefile's targets for containers, and the scripts behind them.

The `docker` here only records its calls.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.commands import execute
from tests.unit.services.containers.conftest import executable

# Records how Compose was called, and has two containers, of which frontend-1's starts last.
DOCKER = """
case "$*" in
    "compose version"*) ;;
    compose*) echo "$COMPOSE_PROJECT_NAME|$COMPOSE_PROFILES|$ZK_LIVE|$*" >> "$0.calls" ;;
    *"label=com.docker.compose.project=$CREATED "*start=last*Label*) echo frontend-1 ;;
    *"label=com.docker.compose.project=$CREATED "*Label*) echo broker-1; echo frontend-1 ;;
esac
"""

# A broker that runs, and a frontend as `docker kill` left it.
KILLED = """
case "$*" in
    *health=*|*status=created*|*status=restarting*) ;;
    ps*start=last*) echo killed ;;
    ps*status=exited*) echo killed ;;
    ps*) echo runs ;;
    inspect*ExitCode*) echo 137 ;;
    inspect*) echo frontend-1 ;;
esac
"""


class Checkout:
    """What the targets need, without images to build."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "deploy", root / "deploy")
        for name in ("Makefile", "docker-compose.yml", ".env"):
            shutil.copy(ROOT / name, root / name)
        for name in ("images.sh", "preflight.sh"):
            executable(root / "deploy/tools" / name, "")
        executable(root / "bin/docker", DOCKER)

    def write_env(self, text: str) -> None:
        (self.root / ".env").write_text(text, encoding="utf-8", newline="")

    def run(self, name: str, *words: str, status: int = 0, **variables: str) -> tuple[str, str]:
        """Output and errors of one of its tools, or of `make`."""
        tool = ["make", "-C", self.root] if name == "make" else [self.root / "deploy/tools" / name]
        path = f"{self.root}/bin:{os.environ['PATH']}"
        done = execute([*tool, *words], status=status, variables={"PATH": path, **variables})
        return done.stdout, done.stderr

    def calls(self) -> list[list[str]]:
        """Project, profiles, ZK_LIVE and words of each call of Compose."""
        lines = (self.root / "bin/docker.calls").read_text(encoding="utf-8").splitlines()
        return [line.split("|") for line in lines]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


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
def test_a_setting_is_read_as_compose_reads_it(checkout: Checkout, line: str, value: str) -> None:
    checkout.write_env(f"A=1\n{line}\nB=2\n")
    assert checkout.run("setting.sh", "PORT", "8088") == (f"{value}\n", "")
    assert checkout.run("setting.sh", "PORT", "8088", PORT="9") == ("9\n", "")


def test_a_setting_without_env_file_is_its_default(checkout: Checkout) -> None:
    (checkout.root / ".env").unlink()
    assert checkout.run("setting.sh", "PORT", "8088") == ("8088\n", "")


@pytest.mark.parametrize(
    ("words", "profiles", "servers"), [([], "", 0), (["HA=1"], "load,ha", 3)], ids=["one", "three"]
)
def test_what_is_in_env_holds_with_three_zookeepers_too(
    checkout: Checkout, words: list[str], profiles: str, servers: int
) -> None:
    checkout.write_env("COMPOSE_PROJECT_NAME=foo\nDASHBOARD_PORT=8090\nCOMPOSE_PROFILES=load\n")
    _, progress = checkout.run("make", "up", *words, CREATED="foo")
    assert "http://127.0.0.1:8090 " in progress
    assert "==> starting 2 containers" in progress
    calls = checkout.calls()
    settings = {(project, profiles, zk.count(":2181")) for project, profiles, zk, _ in calls}
    assert settings == {("foo", profiles, servers)}
    # The file is read by Compose itself: nothing may replace it.
    assert not any("--env-file" in call[3] for call in calls)
    last_words = [call[3].split()[-1] for call in calls]
    assert last_words == ["--remove-orphans", "broker-1", "--no-recreate"]


def test_a_project_without_containers_is_an_error(checkout: Checkout) -> None:
    _, errors = checkout.run("up.sh", "foo", status=1, CREATED="bar")
    (line,) = errors.splitlines()
    assert line.startswith("kafka2011: Compose made no container of the project foo;")


def test_what_starts_later_may_lie_there_killed_until_then(checkout: Checkout) -> None:
    executable(checkout.root / "bin/docker", KILLED)
    _, first = checkout.run("await-healthy.sh", "foo", "kafka2011.start=last")
    assert first.startswith("1 containers serve after")
    _, last = checkout.run("await-healthy.sh", "foo", status=1)
    assert "kafka2011: frontend-1 ended with status 137" in last


def test_the_images_are_those_that_the_settings_name() -> None:
    """The whole script needs an engine; what it starts from does not."""
    text = (ROOT / "deploy/tools/images.sh").read_text(encoding="utf-8")
    assert "VERSION=$(deploy/tools/setting.sh KAFKA2011_VERSION dev)" in text


def test_the_demos_project_can_be_taken_down_by_its_name(checkout: Checkout) -> None:
    checkout.run("make", "down", COMPOSE_PROJECT_NAME="kafka2011-demo")
    ((project, profiles, _, words),) = checkout.calls()
    assert project == "kafka2011-demo"
    assert {"jobs", "ha", "two-live"} <= set(profiles.split(","))
    assert words == "compose down --remove-orphans --volumes"
