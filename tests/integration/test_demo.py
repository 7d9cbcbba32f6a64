"""The whole deployment, as `make demo` runs it: every message in every tier, whatever is killed.

The figures of the report are computed here a second time with nothing of ours, from the lines.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.access_lines import figures, known_lines
from tests.support.commands import KAFKA2011, RunningProcess, run
from tests.support.stored import entries
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

WIDE = {"COLUMNS": "160"}


class RunningDemo(RunningProcess):
    """`kafka2011 embedded demo` in a directory of its own."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.root = directory / "var"
        command = [*KAFKA2011, "embedded", "demo", "--dir", str(self.root), *words]
        super().__init__(command, directory / "output.txt", variables=WIDE)

    def state(self, name: str) -> dict[str, Any]:
        """What the supervisor says of a process; {} before there is anything."""
        try:
            found = json.loads((self.root / "run" / f"{name}.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def leftovers(self) -> list[str]:
        """Names of processes that live."""
        names = [path.stem for path in (self.root / "run").glob("*.json")]
        return [name for name in names if _lives(self.state(name).get("pid", 0))]

    def embedded(self, *words: str) -> None:
        run("embedded", *words, "--dir", self.root, variables=WIDE)

    def finish(self) -> None:
        assert self.wait(600) == 0, self.log()

    def audit(self) -> tuple[int, list[tuple[str, str, str]]]:
        """Exit status of `kafka2011 audit` over what the demo left on disk, and (topic, tier,
        verdict) of every cell and tier that is not complete."""
        done = run("audit", "--var", self.root, "--json", status=None, variables=WIDE)
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, [
            (cell["topic"], tier, told["verdict"])
            for cell in json.loads(done.stdout)["cells"]
            for tier, told in cell["tiers"].items()
            if told["state"] != "complete"
        ]


def _lives(pid: int) -> bool:
    try:
        status = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return status != "Z"


@pytest.fixture
def demos(tmp_path: Path) -> Iterator[list[RunningDemo]]:
    """The demos that a test started: stopped at its end, with nothing left that runs."""
    running: list[RunningDemo] = []
    yield running
    for demo in running:
        if demo.is_running:
            demo.stop()
        assert demo.leftovers() == [], demo.log()


def test_access_log_reaches_every_tier_and_the_report_is_right_and_one_lost_entry_is_named(
    demos: list[RunningDemo], tmp_path: Path
) -> None:
    known = known_lines(3_000, seed=1)
    unreadable = [b"", b"\x00\xff not a log line", b"x" * 2_000_000]
    log = tmp_path / "access.log"
    log.write_bytes(b"\n".join([*unreadable, *(line.line for line in known)]) + b"\n")
    demo = RunningDemo(tmp_path, "--input", str(log))
    demos.append(demo)
    wait_until(
        lambda: not demo.is_running or not demo.state("frontend-1").get("running", True),
        "the frontend to finish",
        200,
    )
    log.unlink()  # nothing after the frontend may need the file
    demo.finish()

    told = json.loads((demo.root / "reports" / "access_log.json").read_text())
    expected = figures(known)
    assert {key: told[key] for key in expected} == expected
    assert demo.audit() == (0, [])

    segment = max(
        (demo.root / "broker-11" / "logs").glob("access-log-[0-9]*/*.kafka"),
        key=lambda path: path.stat().st_size,
    )
    data = segment.read_bytes()
    _, (start, end, _, _), *_ = entries(data)
    segment.write_bytes(data[:start] + data[end:])
    assert demo.audit() == (1, [("access-log", "offline", "missing 1")])


def test_processes_killed_in_the_middle_lose_nothing(
    demos: list[RunningDemo], tmp_path: Path
) -> None:
    demo = RunningDemo(
        tmp_path, "--set", "embedded.duration.ms=30000", "--set", "embedded.rate=1000"
    )
    demos.append(demo)
    wait_until(
        lambda: "processes serve" in demo.log() or not demo.is_running, "everything to serve", 200
    )
    assert demo.is_running, demo.log()
    for name in ("broker-1", "online-1", "mirror-1", "loader", "broker-12", "audit"):
        demo.embedded("kill", name)
        wait_until(lambda name=name: f"{name} ended" in demo.log(), f"a line about {name}")
        demo.embedded("start", name)
    demo.finish()
    assert "killed by SIGKILL" in demo.log()
    status, incomplete = demo.audit()
    assert (status, [verdict for *_, verdict in incomplete if "missing" in verdict]) == (0, [])
