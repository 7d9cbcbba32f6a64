"""Processes killed and paused: the page says which within 3 s, and is right again after."""

import os
import signal
import time

import pytest

from tests.browser.conftest import Deployment, Open
from tests.browser.test_page import expect

RED_WITHIN_S = 3.0
# What the browser itself needs to draw: beside the bound, on a machine that does much else.
GRACE_S = float(os.environ.get("TEST_GRACE_S", "2"))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("broker-2", signal.SIGKILL),
        ("broker-2", signal.SIGSTOP),
        ("mirror-1", signal.SIGKILL),
        ("online-2", signal.SIGSTOP),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_process_is_red_within_three_seconds_and_right_again(
    open_page: Open, deployment: Deployment, name: str, number: signal.Signals
) -> None:
    page = open_page("topology")
    node = page.locator("g.node", has_text=name).first
    expect(node).to_have_class("node up", timeout=30_000)
    os.killpg(deployment.state(name)["pid"], number)
    began = time.monotonic()
    try:
        expect(node).to_have_class("node down", timeout=30_000)
        took_s = time.monotonic() - began
        expect(page.locator("#banner")).to_contain_text(name)
    finally:  # the deployment is shared with the tests after this one
        if number is signal.SIGSTOP:
            os.killpg(deployment.state(name)["pid"], signal.SIGCONT)
        else:
            deployment.kafka2011("embedded", "start", name, "--dir", str(deployment.root))
    expect(node).to_have_class("node up", timeout=60_000)
    assert took_s < RED_WITHIN_S + GRACE_S


def test_nothing_is_called_proved_while_the_audit_is_away(
    open_page: Open, deployment: Deployment
) -> None:
    page = open_page("topology")
    verdict = page.locator(".tile.verdict .big")
    expect(verdict).not_to_have_text("The audit does not answer", timeout=30_000)
    os.killpg(deployment.state("audit")["pid"], signal.SIGKILL)
    try:
        expect(verdict).to_have_text("The audit does not answer", timeout=30_000)
    finally:
        deployment.kafka2011("embedded", "start", "audit", "--dir", str(deployment.root))
    expect(verdict).not_to_have_text("The audit does not answer", timeout=60_000)


def test_a_cut_link_is_said_and_mended_from_the_page(open_page: Open) -> None:
    page = open_page("break")
    page.get_by_role("button", name="Cut wan-link").first.click()
    expect(page.locator("main p[role=status]")).to_have_text("cut: wan-link")
    links = page.get_by_role("region", name="Links to break")
    expect(links.locator("tr", has_text="wan-link").locator(".tag")).to_have_text(
        "cut", timeout=15_000
    )
    links.get_by_role("button", name="Mend wan-link").click()
    expect(links.locator("tr", has_text="wan-link").locator(".tag")).to_have_text(
        "no faults", timeout=15_000
    )
