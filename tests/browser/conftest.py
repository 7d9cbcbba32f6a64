"""One running deployment and one browser for all tests of the page.

Needs Java, a Chromium of the system's packages and the PyPI playwright, which downloads no browser.
Every request of a page must go to the page's own server, and nothing may fail in it.
"""

import contextlib
import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka2011.services.embedded.processes import http_json
from tests.support.commands import KAFKA2011, RunningProcess, run
from tests.support.waiting import wait_until

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
HERE = Path(__file__).parent
Open = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = []
    if CHROMIUM is None:
        reasons.append("chromium is not installed")
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        reasons.append("playwright is not installed")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(600))
            for reason in reasons:
                item.add_marker(pytest.mark.skip(reason=reason))


@dataclass(frozen=True)
class Deployment:
    """`page` is the address of its page, `root` its directory."""

    page: str
    root: Path
    process: RunningProcess

    def state(self, name: str) -> dict[str, Any]:
        """The state file of a process."""
        path = self.root / "run" / f"{name}.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def rows(self, section: str) -> dict[str, Any]:
        """A section of the page's own data; empty while it does not answer."""
        told = http_json(f"{self.page}/api/snapshot?sections={section}") or {}
        found: dict[str, Any] = told.get("sections", {}).get(section, {})
        return found

    def kafka2011(self, *words: str) -> str:
        """Standard output of a command, whatever its status."""
        return run(*words, status=None).stdout

    def stop(self) -> None:
        with self.process, contextlib.suppress(subprocess.TimeoutExpired):
            self.process.signal(signal.SIGINT)
            self.process.wait(90)


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment with rows in its warehouse, that may be broken."""
    root = tmp_path_factory.mktemp("browser") / "var"
    words = [*KAFKA2011, "embedded", "up", "--dir", str(root), "--port", "0"]
    words += ["--set", "embedded.rate=200"]
    words += ["--set", "embedded.chaos=on", "--set", "embedded.start.timeout.ms=300000"]
    process = RunningProcess(words, root.parent / "up.log")
    started = Deployment("", root, process)
    try:
        wait_until(
            lambda: (root / "run" / "dashboard.json").exists() or not process.is_running,
            "the dashboard is started",
            timeout_s=60,
        )
        started = Deployment(
            f"http://127.0.0.1:{started.state('dashboard')['ports']['page']}", root, process
        )

        def is_moving() -> bool:
            assert process.is_running, process.log()
            summary = started.rows("audit").get("summary") or {}
            return bool(summary.get("tiers", {}).get("warehouse", {}).get("count"))

        wait_until(is_moving, "rows are in the warehouse", timeout_s=360)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--js-flags=--expose-gc"]
        )
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any, deployment: Deployment) -> Iterator[Open]:
    """Opens a view; at the end nothing may have failed, nor have left the machine."""
    wrong: list[str] = []

    def note(line: Any) -> None:
        # Chromium says so when any interface of the machine comes or goes: a container's, say.
        if line.type == "error" and "ERR_NETWORK_CHANGED" not in line.text:
            wrong.append(line.text)

    pages: list[Any] = []

    def open_view(view: str, *, may_fail: bool = False, **options: Any) -> Any:
        page = browser.new_page(**options)
        pages.append(page)
        page.on(
            "request",
            lambda asked: (
                None if asked.url.startswith(deployment.page) else wrong.append(asked.url)
            ),
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        if not may_fail:
            page.on("console", note)
        page.goto(f"{deployment.page}/#/{view}")
        return page

    yield open_view
    for page in pages:
        page.close()
    assert wrong == []
