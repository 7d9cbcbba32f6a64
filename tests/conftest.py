"""Options of the whole suite: `--no-skips` turns every skip into a failure of the run.

What the locked dependencies, a compiler and Java give is there wherever tests are made, so a
skipped test is a hole, not a courtesy. Only what a machine need not have is excused.
"""

import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from kafka2011.runtime import logs

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
