"""Processes killed and paused: the page says which, and is right again after."""

import signal

import pytest

from tests.browser.conftest import Deployment, Open, expect


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
def test_process_is_red_and_right_again(
    open_page: Open, deployment: Deployment, name: str, number: signal.Signals
) -> None:
    """How soon, and what it is before its session ends, is a matter of `test_process_states.py`."""
    page = open_page("topology")
    node = page.locator("g.node", has_text=name).first
    expect(node).to_have_class("node up")
    deployment.signal(name, number)
    try:
        expect(node).to_have_class("node down")
        expect(page.locator("#banner")).to_contain_text(name)
    finally:  # the deployment is shared with the tests after this one
        if number is signal.SIGSTOP:
            deployment.signal(name, signal.SIGCONT)
        else:
            deployment.start(name)
    expect(node).to_have_class("node up")


def test_nothing_is_called_proved_while_the_audit_is_away(
    open_page: Open, deployment: Deployment
) -> None:
    away = "The audit does not answer"
    verdict = open_page("topology").locator(".tile.verdict .big")
    expect(verdict).not_to_have_text(away)
    deployment.signal("audit", signal.SIGKILL)
    try:
        expect(verdict).to_have_text(away)
    finally:
        deployment.start("audit")
    expect(verdict).not_to_have_text(away)


def test_a_cut_link_is_said_and_mended_from_the_page(open_page: Open) -> None:
    page = open_page("break")
    links = page.get_by_role("region", name="Links to break")
    state = links.locator("tr", has_text="wan-link").locator(".tag")
    page.get_by_role("button", name="Cut wan-link").first.click()
    expect(page.locator("main p[role=status]")).to_have_text("cut: wan-link")
    expect(state).to_have_text("cut")
    links.get_by_role("button", name="Mend wan-link").click()
    expect(state).to_have_text("no faults")
