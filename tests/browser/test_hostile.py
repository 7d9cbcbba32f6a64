"""Script in the names of topics, groups, processes, in messages and in header fields is text."""

import time
import uuid

from kafka2011.coordination import paths
from kafka2011.coordination.processes import forget_process
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.events.forms import FORMS_DEFAULT
from kafka2011.events.registry_client import RegistryClient
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.producer import Producer
from kafka2011.services.embedded.processes import http_json
from tests.browser.conftest import Deployment, Open
from tests.browser.test_page import expect
from tests.support.processes import expect_process
from tests.support.waiting import wait_until

EVIL = "<img src=x onerror=window.wrong=1>"


def test_script_in_names_is_text(open_page: Open, deployment: Deployment) -> None:
    port = deployment.state("zookeeper-live")["ports"]["client"]
    registry = ZooKeeperRegistry(f"127.0.0.1:{port}")
    registry.start(timeout_ms=10_000)
    topic, group = f"{paths.BROKER_TOPICS}/{EVIL}", f"{paths.CONSUMERS}/{EVIL}"
    try:
        registry.put(topic, b"")
        registry.put(f"{group}/offsets/{EVIL}/1-0", b"5")
        registry.put(f"{group}/owners/{EVIL}/1-0", EVIL.encode())
        expect_process(registry, "live", EVIL, EVIL)
        page = open_page("topics")
        for view, region in (
            ("topics", "Topics"),
            ("groups", "Consumer groups"),
            ("topology", "All processes"),
        ):
            page.evaluate("view => { location.hash = `#/${view}`; }", view)
            expect(page.get_by_role("region", name=region)).to_contain_text(EVIL, timeout=20_000)
            page.evaluate("() => new Promise((done) => setTimeout(done, 300))")
            assert page.evaluate("window.wrong") is None, view
        page.locator("g.node", has_text="onerror").first.click()
        expect(page.locator("#detail")).to_contain_text(EVIL)
        page.evaluate(
            "key => { location.hash = `#/groups?group=${encodeURIComponent(key)}`; }",
            f"live/{EVIL}",
        )
        expect(page.get_by_role("region", name="Partitions of the group")).to_contain_text(EVIL)
        assert page.locator("main img:not(.report)").count() == 0
        assert page.evaluate("window.wrong") is None
    finally:
        registry.delete_recursive(topic)
        registry.delete_recursive(group)
        forget_process(registry, "live", EVIL)
        registry.close()


def test_script_in_messages_and_headers_is_text(open_page: Open, deployment: Deployment) -> None:
    now_ms, mark = int(time.time() * 1000), uuid.uuid4().hex
    login: dict[str, object] = {
        "header": {"guid": uuid.uuid4().bytes, "time": now_ms, "server": EVIL, "service": EVIL},
        "event_time": now_ms, "member_id": 1, "host": EVIL, "agent": mark, "succeeded": True,
    }  # fmt: skip
    registry = RegistryClient(
        f"http://127.0.0.1:{deployment.state('registry')['ports']['registry']}"
    )
    encode = TopicCodec(FORMS_DEFAULT, registry).encoder("login")
    port = deployment.state("broker-1")["ports"]["broker"]
    with Producer(broker_list=f"1:127.0.0.1:{port}") as producer:
        producer.send("login", [f"<script>window.wrong=1</script>{mark}".encode(), encode(login)])
        producer.flush()
    page = open_page("messages")
    seen = 0
    for number in (0, 1):  # the producer chose the partition
        place = f"dc=live&topic=login&partition=1-{number}"
        page.evaluate("place => { location.hash = `#/messages?${place}`; }", place)
        page.get_by_role("searchbox").fill(mark)
        page.get_by_role("button", name="Show").click()
        page.locator("main p[role=status]", has_text="messages;").wait_for()
        for found in page.locator("details.message").all():
            found.locator("summary").click()
            expect(found.locator("pre")).to_contain_text("window.wrong")
            seen += 1
    assert seen == 2
    assert page.evaluate("window.wrong") is None

    def window_ms() -> int:
        told = http_json(f"{deployment.page}/api/cells?topic=login") or {}
        found = [cell for cell in told.get("cells", []) if cell["server"] == EVIL]
        return int(found[-1]["window_start_ms"]) if found else 0

    begins_ms = wait_until(window_ms, "the audit has counted the hostile server", timeout_s=30)
    begins = time.strftime("%H:%M:%S", time.localtime(begins_ms / 1000))
    page.evaluate("location.hash = '#/audit'")
    page.get_by_label(f"login, window {begins}").click()
    expect(page.locator("#detail")).to_contain_text("onerror", timeout=20_000)
    assert page.evaluate("window.wrong") is None
