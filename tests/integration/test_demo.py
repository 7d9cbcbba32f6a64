"""The whole deployment, as `make demo` and `make live` run it: every message in every tier,
whatever is killed, stopped and started again.

The figures of the report are computed here a second time with nothing of ours, from the lines.
STOP_ROUNDS (default 1) says how often the live deployment is stopped and started.
"""

import contextlib
import gzip
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kafka2011.services.embedded.processes import http_json
from kafka2011.services.site.config import SiteConfig
from tests import ROOT
from tests.conftest import Run
from tests.support import site_recount
from tests.support.access_lines import figures, known_lines
from tests.support.commands import KAFKA2011, RunningProcess, execute, run
from tests.support.stored import entries
from tests.support.waiting import wait_until

STOP_ROUNDS = int(os.environ.get("STOP_ROUNDS", "1"))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900 + 150 * STOP_ROUNDS),
]

WIDE = {"COLUMNS": "160"}
IN_C = {**WIDE, "LC_ALL": "C"}
# What the processes of a live deployment are, by the words of their commands.
COMMANDS = "zookeeper broker proxy registry mirror online-consumer site audit load dashboard"
COMMANDS += " frontend"
KINDS = [f" kafka2011 {name}" for name in COMMANDS.split()]
KINDS += ["QuorumPeerMain", "SparkSubmit", "pyspark.daemon"]


# A topic of JSON, as docs/orders.md has it.
SALES = ("--set", "event.forms=*:id,sales:json", "--set", "event.time.field=sales:at")
SALES += ("--set", "event.server.field=sales:host")


class RunningDemo(RunningProcess):
    """`kafka2011 embedded demo`, or another command, in a directory of its own, as a
    user in any place may name it."""

    def __init__(self, directory: Path, *words: str, command: str = "demo") -> None:
        self.root = directory / "größer mit Raum"
        line = [*KAFKA2011, "embedded", command, "--dir", str(self.root), *words]
        line += ["--set", "embedded.start.timeout.ms=300000"]
        super().__init__(line, directory / "output.txt", variables=IN_C)

    def wait_until_serving(self) -> None:
        wait_until(
            lambda: "processes serve" in self.log() or not self.is_running, "all to serve", 300
        )
        assert self.is_running, self.log()

    def summary(self) -> dict[str, Any]:
        """What the audit service says of all windows; {} while it does not answer."""
        port = self.state("audit").get("ports", {}).get("metrics")
        return http_json(f"http://127.0.0.1:{port}/audit/summary?final=1") or {}

    def descendants(self) -> dict[int, str]:
        """The command lines of all processes below this one."""
        parents, found = {}, {self.pid: ""}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit():
                    parents[int(entry.name)] = _stat(int(entry.name))[1]
        while new := [
            pid for pid, parent in parents.items() if parent in found and pid not in found
        ]:
            for pid in new:
                with contextlib.suppress(OSError):
                    words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
                    found[pid] = b" ".join(words).decode(errors="replace")
                parents.pop(pid)
        del found[self.pid]
        return found

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

    def site_events(self) -> dict[str, int]:
        """How many each use has counted; empty while the process does not answer."""
        status = http_json(f"{self._site_url()}/status")
        return {use: found["events"] for use, found in (status or {}).get("uses", {}).items()}

    def measure(self, *, is_on: bool) -> None:
        """Have the site measure the processes, or pause: then an end comes to the events."""
        url = f"{self._site_url()}/measuring"
        wanted = {"measuring": is_on}
        wait_until(lambda: http_json(url, {"on": is_on}) == wanted, "the site to hear it")

    def _site_url(self) -> str:
        return f"http://127.0.0.1:{self.state('site')['ports']['metrics']}"

    def embedded(self, *words: str, status: int = 0) -> str:
        """What the command prints, on either stream."""
        done = run("embedded", *words, "--dir", self.root, status=status, variables=WIDE)
        return done.stdout + done.stderr

    def trace(self, *words: object) -> dict[str, Any]:
        """What `kafka2011 trace` says of a message that has arrived."""
        places: list[object] = ["--warehouse", self.root / "warehouse"]
        for tier in ("live", "offline"):
            port = self.state(f"zookeeper-{tier}")["ports"]["client"]
            places += [f"--{tier}-zookeeper", f"127.0.0.1:{port}"]
        done = run("trace", *words, *places, "--json", variables=WIDE)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

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


def _stat(pid: int) -> tuple[str, int]:
    """A process's state and its parent. Raises OSError when there is none."""
    words = Path("/proc", str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()
    return words[0], int(words[1])


def _lives(pid: int) -> bool:
    try:
        return _stat(pid)[0] != "Z"
    except OSError:
        return False


def _log_of(root: Path, partition: str) -> bytes:
    """All segments of a partition of page-view, from offset 0 on."""
    broker, number = partition.split("-")
    directory = root / f"broker-{broker}" / "logs" / f"page-view-{number}"
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.kafka")))


@pytest.fixture
def demos(tmp_path: Path) -> Iterator[list[RunningDemo]]:
    """The demos that a test started: stopped at its end, with nothing left that runs."""
    running: list[RunningDemo] = []
    yield running
    with contextlib.ExitStack() as ending:
        for demo in running:
            ending.enter_context(demo)
            if demo.is_running:
                ending.callback(demo.stop, 600)
    for demo in running:
        assert demo.leftovers() == [], demo.log()


def test_access_log_reaches_every_tier_and_the_report_is_right_and_one_lost_entry_is_named(
    demos: list[RunningDemo], tmp_path: Path
) -> None:
    known = known_lines(3_000, seed=1)
    unreadable = [b"", b"\x00\xff not a log line", b"x" * 2_000_000]
    log = tmp_path / "access.log"
    lines = b"\n".join([*unreadable, *(line.line for line in known)]) + b"\n"
    log.write_bytes(gzip.compress(lines))
    demo = RunningDemo(tmp_path, "--input", str(log))
    demos.append(demo)
    wait_until(
        lambda: not demo.is_running or not demo.state("frontend-1").get("running", True),
        "the frontend to finish",
        200,
    )
    log.unlink()  # nothing after the frontend may need the file
    demo.finish()
    assert "\n3 lines could not be read; this shows them:\n" in demo.log()

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
    # Longer than any machine takes: the end of the sending is in the hands of the test.
    demo = RunningDemo(
        tmp_path, "--set", "embedded.duration.ms=3600000", "--set", "embedded.rate=1000"
    )
    demos.append(demo)
    demo.wait_until_serving()
    for name in ("broker-1", "online-1", "mirror-1", "loader", "broker-12", "site", "audit"):
        demo.embedded("kill", name)
        wait_until(lambda name=name: f"{name} ended" in demo.log(), f"a line about {name}")
        demo.embedded("start", name)
    wait_until(lambda: min(demo.site_events().values(), default=0) > 100, "events in each use")
    demo.embedded("kill", "frontend-1", "TERM")
    demo.finish()
    assert "killed by signal 9" in demo.log()
    status, incomplete = demo.audit()
    assert (status, [verdict for *_, verdict in incomplete if "missing" in verdict]) == (0, [])
    url = demo.state("site")["environment"]["KAFKA2011_SCHEMA_REGISTRY_URL"]
    settings = SiteConfig(data_dir=demo.root / "site", schema_registry_url=url)
    codec = settings.topic_codec(settings.data_dir / "schemas.json")
    assert site_recount.differences(demo.root, codec) == []
    counted = [site_recount.checkpoint_of(settings.data_dir, use) for use in settings.uses]
    assert all(checkpoint["state"]["events"] > 100 for checkpoint in counted)


def lines_of(page: Path) -> list[str]:
    """The lines of the page's blocks that a shell takes, those with a placeholder left out."""
    blocks = re.findall(r"```sh\n(.*?)\n```", page.read_text(), re.S)
    lines = re.sub(r" *\\\n *", " ", "\n".join(blocks)).splitlines()
    return [line for line in lines if "localhost:2181" not in line]


def follow_pages(up: RunningDemo, directory: Path, in_process: Run) -> None:
    """Every command of docs/runbook and the drill of docs/upgrade.md: first those of a process
    that is down, then those that look, at last every process stopped and started under load. Each
    ends with status 0, the looks at a process that is down excepted."""

    def status(line: str) -> int:
        program, *words = shlex.split(line)
        if program != "kafka2011" or "||" in words:
            script = f"cd '{here}'; {line}"
            return execute(["sh", "-ec", script], variables={"PATH": path}).returncode
        return in_process(*words, status=None).status

    def until_done(line: str) -> None:
        wait_until(lambda: status(line) == 0, lambda: f"{line}\n{up.log()}", 300)

    here = directory / "here"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    pages = {page.stem: lines_of(page) for page in (ROOT / "docs/runbook").glob("[!R]*.md")}
    drill = lines_of(ROOT / "docs/upgrade.md")
    down, reason, tail, start, *worked = pages.pop("process-down")
    rest = {line for page in pages.values() for line in page} - {down, *worked}
    looks = sorted(rest - set(drill))
    assert len(looks) > 30
    assert not [line for line in looks if " restart " in line]
    here.mkdir()
    (here / "var").symlink_to(up.root)
    with contextlib.chdir(here):
        up.embedded("kill", "broker-1")
        wait_until(lambda: status(down) == 1, "broker-1 is down")
        shown = in_process(*shlex.split(reason)[1:], status=1).out
        assert "killed by signal 9" in shown
        assert [status(line) for line in (tail, start)] == [0, 0]
        for line in worked:
            until_done(line)
        for line in looks:
            until_done(line)
        for line in drill:
            if " restart " in line:
                assert status(line) == 0, line
            else:
                until_done(line)


def follow_orders(up: RunningDemo, directory: Path, in_process: Run) -> None:
    """The commands of docs/orders.md and docs/tail.md as they stand there; those that ask for what
    arrives until it has."""
    text = (ROOT / "docs/orders.md").read_text(encoding="utf-8")
    (schema,), programs = (
        re.findall(rf"```{language}\n(.*?)```", text, re.S) for language in ("json", "python")
    )
    register, count, audit, *looks, count_sales, audit_sales, by_hand = lines_of(
        ROOT / "docs/orders.md"
    )
    tail, audit_lines, show_lines = lines_of(ROOT / "docs/tail.md")
    here = directory / "orders"
    here.mkdir()
    (here / "var").symlink_to(up.root)
    (here / "app.log").write_text("".join(f"line {number}\n" for number in range(100)))
    (here / "order.avsc").write_text(schema)
    for name, program in zip(("produce_orders.py", "produce_sales.py"), programs, strict=True):
        (here / name).write_text(program)

    def said(line: str, status: int | None = 0) -> str:
        return in_process(*shlex.split(line)[1:], status=status).out

    def until_said(line: str, answer: str) -> None:
        wait_until(
            lambda: re.search(answer, said(line, None), re.M),
            lambda: f"{answer}: {said(line, None)}",
        )

    with contextlib.chdir(here):
        said(register)
        for name in ("produce_orders.py", "produce_sales.py"):
            execute(["sh", "-ec", f"cd '{here}'; '{sys.executable}' {name}"])
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        home = {"HOME": str(here), "PATH": path}  # the positions are kept there
        execute(["sh", "-ec", f"cd '{here}'; {tail}"], variables=home)
        counting = ["audit.enable=true", "audit.dir=console"]
        sets = [word for setting in counting for word in ("--set", setting)]
        in_process("console-producer", "--topic", "by-hand", *sets, text=b"one\ntwo\n")
        until_said(count, r"^100 +5050\b")
        until_said(count_sales, r"^100 +2475\.0\b")
        until_said(audit, r"^orders +\d+( +100){4} +complete")
        until_said(audit_sales, r"^sales +\d+( +100){4} +complete")
        sale = {"at": datetime.now(UTC).isoformat(), "host": "till-1", "item": "lamp", "price": 2.5}
        (here / "sales.jsonl").write_text(json.dumps(sale) + "\n")
        execute(["sh", "-ec", f"cd '{here}'; {by_hand}"], variables=home)
        until_said(audit_sales, r"^sales +\S+ +till-1( +1){4} +complete")
        until_said(audit_lines, r"^app-log +\d+( +100){4} +complete")
        until_said("kafka2011 audit --topic by-hand --all", r"^by-hand +\d+( +2){4} +complete")
        assert "line 0  app.log" in said(show_lines)
        shown = said(
            "kafka2011 console-consumer --topic orders --from-beginning --max-messages 1 "
            "--formatter event"
        )
        assert json.loads(shown)["schema"] == "Order"
        for line in (audit, *looks):
            said(line)


def test_live_repeats_nothing_after_planned_stops_and_nothing_outlives_a_kill(
    demos: list[RunningDemo], tmp_path: Path, run: Run
) -> None:
    def start(rate: int = 300) -> RunningDemo:
        words = ("--port", "0", "--set", f"embedded.rate={rate}", *SALES)
        up = RunningDemo(tmp_path, *words, command="up")
        demos.append(up)
        up.wait_until_serving()
        before = up.summary().get("produced", 0)
        wait_until(lambda: up.summary().get("produced", 0) > before + 300, "events")
        return up

    def books(up: RunningDemo) -> dict[str, int]:
        """The number of cells with each verdict; no answer is an unknown cell."""
        verdicts = up.summary().get("verdicts", {"unknown": 1})
        return {name: n for name, n in verdicts.items() if n}

    for number in range(STOP_ROUNDS):
        up = start()
        second = up.embedded("demo", status=2)
        assert f"pid {up.pid}" in second
        assert str(up.root) in second
        assert up.embedded("status").count("running, pid") == 16
        assert ("goes on with the data that make live left in " in up.log()) == (number > 0)
        assert "other settings" not in up.log()
        if number % 2:
            up.signal(signal.SIGINT)
        else:
            up.embedded("stop")
        assert up.wait() == 0, up.log()
        assert "stopping ...\n" in up.log()
        behind, count, stopped, go_on = up.log().splitlines()[-4:]
        assert behind.startswith("all that was confirmed to producers is on the brokers' disks; ")
        assert count.endswith(f" audit --dir {shlex.quote(str(up.root))}")
        assert stopped.startswith("stopped; data and logs stay in ")
        assert " embedded up --port 0 " in go_on
        assert f" --dir {shlex.quote(str(up.root))}" in go_on
        assert f"no deployment runs under {up.root}: " in up.embedded("status", status=3)
        _, incomplete = up.audit()
        assert {tier for _, tier, _ in incomplete} <= {"warehouse"}, "only late for the last load"
    assert "the demo would delete them: topics " in up.embedded("demo", status=2)

    up = start(rate=301)
    assert "goes on with the data that make live left in " in up.log()
    changed = "without --set embedded.rate=300; with --set embedded.rate=301"
    assert f"other settings than at the last start: {changed}\n" in up.log()
    up.embedded("kill", "frontend-1", "TERM")
    wait_until(lambda: not _lives(up.state("frontend-1")["pid"]), "the frontend to stop")
    up.measure(is_on=False)
    wait_until(lambda: set(books(up)) == {"complete"}, lambda: f"only complete: {books(up)}")
    assert json.loads((up.root / "run" / "restarts.json").read_text()) == []
    found = up.trace("--topic", "page-view", "--partition", "1-0", "--offset", 0)
    again = up.trace(found["guid"])
    assert again["steps"] == found["steps"]
    _, live, offline, warehouse = (step["places"][0] for step in found["steps"])
    copies = [
        _log_of(up.root, place["partition"])[place["offset"] : place["next_offset"]]
        for place in (live, offline)
    ]
    assert copies[0] == copies[1]
    assert bytes.fromhex(found["guid"]) in copies[0]
    file = up.root / "warehouse" / "page_view" / warehouse["file"]
    row = f"select guid from read_parquet('{file}') limit 1 offset {warehouse['row']}"
    assert duckdb.sql(row).fetchall() == [(bytes.fromhex(found["guid"]),)]
    assert up.embedded("start", "frontend-1").startswith("frontend-1 started")
    up.measure(is_on=True)

    follow_orders(up, tmp_path, run)
    follow_pages(up, tmp_path, run)
    up.embedded("kill", "frontend-1", "TERM")
    wait_until(lambda: not _lives(up.state("frontend-1")["pid"]), "the frontend to stop")
    up.measure(is_on=False)
    good = {"complete", "redelivered"}  # broker-1 was killed
    wait_until(lambda: set(books(up)) <= good, lambda: f"only {good}: {books(up)}")
    up.embedded("start", "frontend-1")

    there = up.descendants()
    assert [kind for kind in KINDS if not any(kind in line for line in there.values())] == []
    up.kill()
    wait_until(
        lambda: not any(map(_lives, there)),
        lambda: f"left: {[line for pid, line in there.items() if _lives(pid)]}",
    )
