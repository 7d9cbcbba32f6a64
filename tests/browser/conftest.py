"""One running deployment and one browser for all tests of the page.

Needs Java, a Chromium of the system's packages and the PyPI playwright, which downloads no browser.
Every request of a page must go to the page's own server, and nothing may fail in it.
"""

import contextlib
import functools
import importlib.util
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.services.embedded.processes import http_json
from tests.support.commands import KAFKA2011, RunningProcess, run
from tests.support.waiting import DEADLINE_S, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMIUM = CHROMIUM or shutil.which("google-chrome")
HERE = Path(__file__).parent
SETTINGS = ("embedded.rate=200", "embedded.chaos=on", "embedded.start.timeout.ms=300000")
# Chromium ends requests so when any interface of the machine comes or goes: a container's, say.
NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
Open = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.timeout(1200))
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="chromium is not installed"))
            if importlib.util.find_spec("playwright") is None:
                item.add_marker(pytest.mark.skip(reason="playwright is not installed"))


class Deployment:
    """A deployment below `root`, that may be broken."""

    def __init__(self, root: Path) -> None:
        self.root = root
        words = [*KAFKA2011, "embedded", "up", "--dir", str(root), "--port", "0"]
        words += [word for setting in SETTINGS for word in ("--set", setting)]
        self.process = RunningProcess(words, root.parent / "up.log")

    def state(self, name: str) -> dict[str, Any]:
        """The state file of a process."""
        path = self.root / "run" / f"{name}.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def port(self, name: str, purpose: str) -> int:
        return int(self.state(name)["ports"][purpose])

    @functools.cached_property
    def page(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self.port('dashboard', 'page')}"

    def ask(self, path: str) -> dict[str, Any]:
        """The JSON behind a path of the page; empty while it does not answer."""
        return http_json(f"{self.page}{path}") or {}

    def rows(self, section: str) -> dict[str, Any]:
        """A section of the page's own data; empty while it does not answer."""
        sections: dict[str, Any] = self.ask(f"/api/snapshot?sections={section}").get("sections", {})
        return sections.get(section) or {}

    def answered(self, section: str, name: str) -> Any:
        """A row of a section, once the page answers and has it."""
        return wait_until(lambda: self.rows(section).get(name), f"{section} has {name}")

    def signal(self, name: str, number: int) -> None:
        """To a process and its children."""
        os.killpg(self.state(name)["pid"], number)

    def measure(self, *, is_on: bool) -> None:
        """Have the site measure the processes, or pause."""
        url = f"http://127.0.0.1:{self.port('site', 'metrics')}/measuring"
        wanted = {"measuring": is_on}
        wait_until(lambda: http_json(url, {"on": is_on}) == wanted, "the site to hear it")

    def start(self, name: str) -> None:
        """Start a process that was killed."""
        run("embedded", "start", name, "--dir", self.root, status=None)

    @contextlib.contextmanager
    def registry(self) -> Iterator[ZooKeeperRegistry]:
        """The live datacenter's ZooKeeper."""
        found = ZooKeeperRegistry(f"127.0.0.1:{self.port('zookeeper-live', 'client')}")
        found.start(timeout_ms=60_000)
        with contextlib.closing(found):
            yield found

    def stop(self) -> int:
        """As Ctrl-C; the exit status."""
        with self.process:
            self.process.signal(signal.SIGINT)
            return self.process.wait(600)


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment with rows in its warehouse."""
    started = Deployment(tmp_path_factory.mktemp("browser") / "var")

    def is_moving() -> bool:
        assert started.process.is_running, started.process.log()
        if not (started.root / "run/dashboard.json").exists():
            return False
        summary = started.rows("audit").get("summary") or {}
        return bool(summary.get("tiers", {}).get("warehouse", {}).get("count"))

    try:
        wait_until(is_moving, "rows are in the warehouse", timeout_s=600)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect as expected
    from playwright.sync_api import sync_playwright

    expected.set_options(timeout=DEADLINE_S * 1000)
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
    pages: list[Any] = []

    def note_request(asked: Any) -> None:
        if not asked.url.startswith(deployment.page):
            wrong.append(asked.url)

    def note_console(line: Any) -> None:
        if line.type == "error" and NETWORK_CHANGED not in line.text:
            wrong.append(line.text)

    def open_view(view: str, *, may_fail: bool = False, **options: Any) -> Any:
        # A zone of its own: the page's times are UTC all the same.
        page = browser.new_page(timezone_id="Asia/Kathmandu", **options)
        page.set_default_timeout(DEADLINE_S * 1000)
        pages.append(page)
        page.on("request", note_request)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        if not may_fail:
            page.on("console", note_console)
        load_whole(page, f"{deployment.page}/#/{view}")
        return page

    yield open_view
    for page in pages:
        page.close()
    assert wrong == []


def load_whole(page: Any, url: str) -> None:
    """Load a page, again where a change of the machine's network ended a request for a part."""
    failures: list[str] = []
    page.on("requestfailed", lambda request: failures.append(request.failure or ""))

    def try_to_load() -> bool:
        if failures:
            page.goto("about:blank")  # from one fragment of a page to another loads nothing
        failures.clear()
        try:
            page.goto(url)
        except Exception as error:
            if NETWORK_CHANGED not in str(error):
                raise
            failures.append(str(error))
        return not any(NETWORK_CHANGED in failure for failure in failures)

    wait_until(try_to_load, lambda: f"the page loads: {failures}")


def expect(found: Any) -> Any:
    """Playwright's assertions, which wait."""
    from playwright.sync_api import expect as expected

    return expected(found)


def show(page: Any, view: str) -> None:
    """Go to another view as a link does."""
    page.evaluate("view => { location.hash = `#/${view}`; }", view)


def read_script(name: str) -> str:
    """A function of JavaScript for `page.evaluate`; it may call `storeOf` of page_store.js."""
    store, script = ((HERE / each).read_text(encoding="utf-8") for each in ("page_store.js", name))
    return f"(given) => {{\n{store}\nreturn (\n{script.rstrip().rstrip(';')}\n)(given);\n}}"
