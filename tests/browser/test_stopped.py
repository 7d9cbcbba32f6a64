"""The page of a deployment that was stopped says so. Last of all: it stops the deployment."""

from tests.browser.conftest import Deployment, Open, expect, show


def test_stopped_deployment_says_so_and_keeps_the_last_picture(
    open_page: Open, deployment: Deployment
) -> None:
    page = open_page("topology", may_fail=True)
    page.locator("g.node", has_text="broker-1").first.wait_for()
    assert deployment.stop() == 0, deployment.process.log()
    expect(page.locator("#banner")).to_contain_text("stopped")
    expect(page.locator("g.node", has_text="broker-1").first).to_be_visible()
    show(page, "groups")
    page.get_by_role("heading", name="Consumer groups").wait_for()
    expect(page.locator("#banner")).to_contain_text("stopped")
