"""Options of the whole suite: `--no-skips` turns every skip into a failure of the run. And
`run("topics", "list", ...)`, a command in this process: an interpreter of its own costs a second.

What the locked dependencies, a compiler and Java give is there wherever tests are made, so a
skipped test is a hole, not a courtesy. Only what a machine need not have is excused.
"""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog
from hypothesis import HealthCheck, settings

from kafka2011.runtime import logs
from kafka2011.runtime.twins import is_pure_wanted

# With them pytest writes the whole difference of what is not equal: of megabytes that takes hours.
for of_a_service in ("CI", "BUILD_NUMBER"):
    os.environ.pop(of_a_service, None)

# No test asserts on a duration, not even Hypothesis's own 200 ms an example.
settings.register_profile("kafka2011", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kafka2011")

EXCUSED = (
    *("no container engine", "not beside the project", "chromium is not installed"),
    *("stunnel is not installed", "network namespaces may not be made here"),
    *("neither kubectl nor kustomize is installed", "kubernetes-validate is not installed"),
    *("systemd-analyze is not installed", "this file system keeps its pages (a tmpfs)"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail the run when a test is skipped")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The run with the pure loops leaves out what is handed both twins, and says the same again."""
    if is_pure_wanted():
        again = [item for item in items if "twin" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if item not in again]


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("--no-skips") or reporter is None:
        return
    skips = [str(report.longrepr) for report in reporter.stats.get("skipped", [])]
    unexpected = [skip for skip in skips if not any(reason in skip for reason in EXCUSED)]
    if unexpected:
        reporter.write_line(f"--no-skips: {len(unexpected)} skipped tests fail this run", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _logs_as_at_the_start() -> Iterator[None]:
    """What a command's test configured must not silence the next test's logs."""
    yield
    structlog.reset_defaults()
    root = logging.getLogger()
    for handler in root.handlers[:]:  # its stream was the test's, and is closed now
        if isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter):
            root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    logs.as_a_library()


class Done(NamedTuple):
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Run]:
    """`run("offsets", "get", ..., status=0, text=b"")`: the command on standard input `text`."""
    from kafka2011.cli.main import main

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def command(*words: object, status: int | None = 0, text: bytes | None = b"") -> Done:
        (tmp_path / "stdin").write_bytes(text or b"")
        monkeypatch.setattr(sys, "argv", ["kafka2011", *map(str, words)])
        capfd.readouterr()
        with (tmp_path / "stdin").open() as stdin, pytest.raises(SystemExit) as ended:
            monkeypatch.setattr(sys, "stdin", sys.stdin if text is None else stdin)
            main()
            raise SystemExit(0)
        code = ended.value.code
        done = Done(code if isinstance(code, int) else 0, *capfd.readouterr())
        assert status in (None, done.status), done
        return done

    yield command
    for number, handler in handlers.items():
        signal.signal(number, handler)
