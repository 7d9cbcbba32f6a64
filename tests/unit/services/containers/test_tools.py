"""The Makefile's targets for containers, and the scripts behind them.

The `docker` here only records its calls.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.commands import execute
from tests.unit import text_of
from tests.unit.services.containers.conftest import executable

# Records how Compose was called, and has two containers that run. With STATE, the words of a filter
# of `docker ps`, one is in that state until Compose starts it; REFUSED is why Compose does not.
DOCKER = """
case "$*" in
    "compose version"*) ;;
    compose*)
        echo "$COMPOSE_PROJECT_NAME|$COMPOSE_PROFILES|$ZK_LIVE|$*" >> "$0.calls"
        case "$* $REFUSED" in
            *--detach*[a-z]' '?*) echo "$REFUSED" >&2; exit 1 ;;
            *--detach*) [ -n "$STAYS" ] || touch "$0.started" ;;
        esac ;;
    "ps --all --quiet --filter label=com.docker.compose.project=$CREATED "*)
        case "$*" in
            *oneoff=False) echo runs; echo other ;;
            *"${STATE:-nothing}"*) [ -e "$0.started" ] || echo other ;;
        esac ;;
    inspect*ExitCode*) echo 137 ;;
    inspect*) echo broker-1 ;;
    logs*) echo the last line ;;
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
    assert checkout.run("setting.sh", "PORT", "8088", PORT="") == ("8088\n", "")


def test_a_setting_without_env_file_is_its_default(checkout: Checkout) -> None:
    (checkout.root / ".env").unlink()
    assert checkout.run("setting.sh", "PORT", "8088") == ("8088\n", "")


def test_a_cdpath_of_the_user_leads_no_tool_elsewhere(checkout: Checkout, tmp_path: Path) -> None:
    """With it `cd` prints where it went, into what a tool answers, and may go somewhere else."""
    other = tmp_path / "other"
    (other / "deploy/tools").mkdir(parents=True)
    (other / ".env").write_text("PORT=1\n", encoding="utf-8")
    for path in (f".:{other}", str(other)):
        said = execute(
            ["sh", "-c", 'cd "$1" && deploy/tools/setting.sh PORT 8088', "sh", checkout.root],
            variables={"CDPATH": path},
        )
        assert said.stdout == "8088\n"
    for tool in [*(ROOT / "deploy/tools").iterdir(), ROOT / ".ci/run"]:
        assert not re.search(r"^(?!.*CDPATH= cd ).*\bcd \"", tool.read_text(), re.M), tool


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
    assert last_words == ["--remove-orphans", "--no-recreate"]


def test_the_form_of_log_lines_is_that_of_env_and_the_inputs_notation_is_none(
    checkout: Checkout,
) -> None:
    """Both are LOG_FORMAT: an empty one hid that of .env, and with a notation no process began."""
    executable(checkout.root / "bin/docker", 'echo "<${LOG_FORMAT-unset}>" >> "$0.forms"\n')
    python = checkout.root / "bin/python"
    executable(python, 'echo "<${LOG_FORMAT-unset}>" "$@" >> "$0.forms"\n')
    notation = '%h "$x" %r'
    demo = ("-o", "prepare", "demo-docker", f"PYTHON_IN={python}", "INPUT=a.log")
    checkout.run("make", "down")
    checkout.run("make", "down", "LOG_FORMAT=json")
    checkout.run("make", "down", LOG_FORMAT="json")
    forms = set(text_of(checkout.root / "bin/docker.forms").splitlines())
    assert forms == {"<unset>", "<json>"}
    checkout.run("make", *demo, f"LOG_FORMAT={notation}")
    assert text_of(checkout.root / "bin/python.forms").startswith("<unset> -m kafka2011 containers")
    assert f"--format {notation}\n" in text_of(checkout.root / "bin/python.forms")


def test_a_project_without_containers_is_an_error(checkout: Checkout) -> None:
    _, errors = checkout.run("up.sh", "foo", status=1, CREATED="bar")
    (line,) = errors.splitlines()
    assert line.startswith("kafka2011: Compose made no container of the project foo;")


def test_the_status_of_nothing_is_one_line(checkout: Checkout) -> None:
    _, errors = checkout.run("make", "status", status=2)
    assert (
        errors.splitlines()[0]
        == "kafka2011: nothing of the project kafka2011 runs: make up starts it"
    )
    assert not (checkout.root / "bin/docker.calls").exists(), "Compose was not asked"


@pytest.mark.parametrize(
    ("state", "variables", "status", "said"),
    [
        # Killed earlier, and Compose starts it again.
        ("status=exited", {}, 0, ["containers serve"]),
        ("status=exited", {"STAYS": "yes"}, 1, ["broker-1 ended with status 137; its last lines:"]),
        ("health=starting", {}, 0, ["containers serve"]),
        (
            "health=unhealthy",
            {"STAYS": "yes"},
            1,
            ["broker-1 does not serve after", "the last line"],
        ),
        ("status=created", {"STAYS": "yes"}, 1, ["not started: broker-1"]),
        ("status=created", {"REFUSED": "no room"}, 1, ["not started: broker-1", "no room"]),
    ],
)
def test_up_returns_when_everything_serves_else_it_names_what_does_not(
    checkout: Checkout, state: str, variables: dict[str, str], status: int, said: list[str]
) -> None:
    patience = {"AWAIT_TIMEOUT_S": "2" if status else "60"}
    settings = {"STATE": state, "CREATED": "foo", **patience, **variables}
    _, errors = checkout.run("up.sh", "foo", status=status, **settings)
    assert "==> starting 2 containers" in errors
    for text in said:
        assert text in errors


def test_the_images_are_those_that_the_settings_name() -> None:
    """The whole script needs an engine; what it starts from does not."""
    text = (ROOT / "deploy/tools/images.sh").read_text(encoding="utf-8")
    assert "VERSION=$(deploy/tools/setting.sh KAFKA2011_VERSION dev)" in text


def test_the_demos_project_can_be_taken_down_by_its_name(checkout: Checkout) -> None:
    checkout.run("make", "down", COMPOSE_PROJECT_NAME="kafka2011-demo")
    ((project, profiles, _, words),) = checkout.calls()
    assert project == "kafka2011-demo"
    assert {"jobs", "ha", "two-live"} <= set(profiles.split(","))
    # With the replicas of REPLICAS=3: their volumes go, too.
    files = "-f docker-compose.yml -f deploy/docker/replicated.yml"
    assert words == f"compose {files} down --remove-orphans --volumes"
