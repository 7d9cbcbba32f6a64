"""The whole deployment, as `make demo` runs it: every message in every tier, whatever is killed.

The figures of the report are computed here a second time with nothing of ours, from the lines.
"""

import collections
import json
import random
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import KAFKA2011, RunningProcess, run
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


WIDE = {"COLUMNS": "160"}


class RunningDemo(RunningProcess):
    """`kafka2011 embedded demo` in a directory of its own."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.root = directory / "var"
        command = [*KAFKA2011, "embedded", "demo", "--dir", str(self.root), *words]
        super().__init__(command, directory / "output.txt", variables=WIDE)

    def states(self) -> list[dict[str, Any]]:
        found = []
        for path in (self.root / "run").glob("*.json"):
            try:
                state = json.loads(path.read_text())
            except ValueError:
                continue
            if isinstance(state, dict) and "command" in state:
                found.append(state)
        return found

    def embedded(self, *words: str) -> None:
        run("embedded", *words, "--dir", self.root, variables=WIDE)

    def is_sending(self) -> bool:
        return "processes serve" in self.log() or not self.is_running

    def finish(self) -> None:
        assert self.wait(300) == 0, self.log()

    def close(self) -> None:
        if self.is_running:
            self.stop(60)


@pytest.fixture
def demos(tmp_path: Path) -> Iterator[list[RunningDemo]]:
    running: list[RunningDemo] = []
    yield running
    for demo in running:
        demo.close()
        leftovers = [state["name"] for state in demo.states() if _lives(state["pid"])]
        assert leftovers == [], demo.log()


def _lives(pid: int) -> bool:
    try:
        status = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return status != "Z"


def access_log(count: int, seed: int) -> list[bytes]:
    """Lines of a combined log with the oddities that real ones have."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        host = f"192.0.2.{rng.randrange(1, 60)}"
        hour, minute = rng.randrange(24), rng.randrange(60)
        time = f"{rng.randrange(17, 20)}/May/2015:{hour:02}:{minute:02}:07 +0000"
        path = f"/page/{rng.randrange(40)}" + rng.choice(["", "?q=1", "/%20x"])
        status = rng.choice([200, 200, 200, 304, 404, 500])
        size = "-" if status == 304 else str(rng.randrange(100_000))
        lines.append(
            f'{host} - - [{time}] "GET {path} HTTP/1.1" {status} {size} "-" "agent"'.encode()
        )
    lines[10] = b""
    lines[20] = b"\x00\xff not a log line"
    lines[30] = b"x" * 2_000_000
    lines[40] = lines[41][:-1]  # the closing quote of the last field is missing
    lines[50] = lines[51].replace(b"agent", b"ag\xff\xfeent")
    return lines


READABLE = re.compile(
    rb'(\S+) \S+ \S+ \[(\d+)/May/2015:(\d\d):[^]]*\] "(\S+) (\S+) [^"]*" (\d+) (\S+)'
)


def expected_report(lines: list[bytes]) -> dict[str, Any]:
    """The report's figures from the lines themselves."""
    hours: dict[str, list[bytes]] = collections.defaultdict(list)
    sizes: collections.Counter[str] = collections.Counter()
    paths: collections.Counter[str] = collections.Counter()
    views = errors = 0
    hosts = set()
    for line in lines:
        match = READABLE.match(line)
        if match is None:
            continue
        host, day, hour, _, path, status, size = match.groups()
        views += 1
        errors += int(status) >= 400
        hosts.add(host)
        key = f"2015-05-{int(day):02}-{int(hour):02}"
        hours[key].append(host)
        sizes[key] += 0 if size == b"-" else int(size)
        paths[path.decode()] += 1
    return {
        "views": views,
        "visitors": len(hosts),
        "errors": errors,
        "hours": {key: (len(found), len(set(found)), sizes[key]) for key, found in hours.items()},
        "top": sorted(paths.items(), key=lambda item: (-item[1], item[0]))[:20],
    }


def audit_cells(demo: RunningDemo) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and the cells of `kafka2011 audit` over what the demo left on disk."""
    done = run("audit", "--var", demo.root, "--json", status=None, variables=WIDE)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)["cells"]


def not_complete(cells: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """(topic, tier, verdict) of every cell and tier that is not complete."""
    return [
        (cell["topic"], tier, told["verdict"])
        for cell in cells
        for tier, told in cell["tiers"].items()
        if told["state"] != "complete"
    ]


def remove_one_entry(segment: Path) -> None:
    """Take the second entry out of a segment, byte by byte from the format's definition."""
    data = segment.read_bytes()
    first_end = 4 + struct.unpack(">i", data[:4])[0]
    second_end = first_end + 4 + struct.unpack(">i", data[first_end : first_end + 4])[0]
    segment.write_bytes(data[:first_end] + data[second_end:])
    payload = data[first_end + 10 : second_end]
    assert zlib.crc32(payload) == struct.unpack(">I", data[first_end + 6 : first_end + 10])[0]


def test_access_log_reaches_every_tier_and_the_report_is_right_and_one_lost_entry_is_named(
    demos: list[RunningDemo], tmp_path: Path
) -> None:
    lines = access_log(3_000, seed=1)
    log = tmp_path / "access.log"
    log.write_bytes(b"\n".join(lines) + b"\n")
    demo = RunningDemo(tmp_path, "--input", str(log))
    demos.append(demo)

    frontend = demo.root / "run" / "frontend-1.json"
    wait_until(
        lambda: (
            not demo.is_running
            or (frontend.exists() and not json.loads(frontend.read_text())["running"])
        ),
        "the frontend to finish",
        200,
    )
    log.unlink()  # nothing after the frontend may need the file
    demo.finish()

    report = json.loads((demo.root / "reports" / "access_log.json").read_text())
    expected = expected_report(lines)
    totals = report["totals"]
    assert totals["page_views"] == expected["views"] == 2_997
    assert (totals["visitors"], totals["errors"]) == (expected["visitors"], expected["errors"])
    assert {
        row["hour"]: (row["page_views"], row["visitors"], row["bytes"]) for row in report["hours"]
    } == expected["hours"]
    assert [(row["path"], row["page_views"]) for row in report["top_paths"]] == expected["top"]

    status, cells = audit_cells(demo)
    assert (status, not_complete(cells)) == (0, [])

    segment = max(
        (demo.root / "broker-11" / "logs").glob("access-log-[0-9]*/*.kafka"),
        key=lambda path: path.stat().st_size,
    )
    remove_one_entry(segment)
    status, cells = audit_cells(demo)
    assert status == 1
    assert not_complete(cells) == [("access-log", "offline", "missing 1")]


def test_processes_killed_in_the_middle_lose_nothing(
    demos: list[RunningDemo], tmp_path: Path
) -> None:
    demo = RunningDemo(
        tmp_path, "--set", "embedded.duration.ms=30000", "--set", "embedded.rate=1000"
    )
    demos.append(demo)
    wait_until(demo.is_sending, "everything to serve", 200)
    assert demo.is_running, demo.log()
    for name in ("broker-1", "online-1", "mirror-1", "loader", "broker-12", "audit"):
        demo.embedded("kill", name)
        wait_until(lambda name=name: f"{name} ended" in demo.log(), f"a line about {name}", 20)
        demo.embedded("start", name)
    demo.finish()
    assert "killed by SIGKILL" in demo.log()
    status, cells = audit_cells(demo)
    assert status == 0
    assert not [told for told in not_complete(cells) if "missing" in told[2]]
