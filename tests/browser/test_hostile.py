"""Script in the names of topics, groups, processes, in messages and in header fields is text."""

import time
import uuid
from urllib.parse import quote

from kafka2011.coordination import paths
from kafka2011.coordination.processes import forget_process
from kafka2011.events.forms import FORMS_DEFAULT
from kafka2011.events.registry_client import RegistryClient
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.producer import Producer
from tests.browser.conftest import Deployment, Open, expect, show
from tests.support.processes import expect_process
from tests.support.waiting import wait_until

EVIL = "<img src=x onerror=window.wrong=1>"


def test_script_in_names_is_text(open_page: Open, deployment: Deployment) -> None:
    topic, group = f"{paths.BROKER_TOPICS}/{EVIL}", f"{paths.CONSUMERS}/{EVIL}"
    with deployment.registry() as registry:
        try:
            registry.put(topic, b"")
            registry.put(f"{group}/offsets/{EVIL}/1-0", b"5")
            registry.put(f"{group}/owners/{EVIL}/1-0", EVIL.encode())
            expect_process(registry, "live", EVIL, EVIL)
            look_at_names(open_page)
        finally:
            registry.delete_recursive(topic)
            registry.delete_recursive(group)
            forget_process(registry, "live", EVIL)


def look_at_names(open_page: Open) -> None:
    page = open_page("topics")
    regions = {"topics": "Topics", "groups": "Consumer groups", "topology": "All processes"}
    for view, region in regions.items():
        show(page, view)
        expect(page.get_by_role("region", name=region)).to_contain_text(EVIL)
        page.evaluate("() => new Promise((done) => setTimeout(done, 300))")
        assert page.evaluate("window.wrong") is None, view
    page.locator("g.node", has_text="onerror").first.click()
    expect(page.locator("#detail")).to_contain_text(EVIL)
    show(page, f"groups?group={quote(f'live/{EVIL}', safe='')}")
    expect(page.get_by_role("region", name="Partitions of the group")).to_contain_text(EVIL)
    assert page.locator("main img:not(.report)").count() == 0
    assert page.evaluate("window.wrong") is None


def send_logins(deployment: Deployment, mark: str) -> None:
    """A script that is no event, and an event of a hostile server; both contain `mark`."""
    now_ms = int(time.time() * 1000)
    login: dict[str, object] = {
        "header": {"guid": uuid.uuid4().bytes, "time": now_ms, "server": EVIL, "service": EVIL},
        "event_time": now_ms,
        "member_id": 1,
        "host": EVIL,
        "agent": mark,
        "succeeded": True,
    }
    registry = RegistryClient(f"http://127.0.0.1:{deployment.port('registry', 'registry')}")
    encode = TopicCodec(FORMS_DEFAULT, registry).encoder("login")
    broker = f"1:127.0.0.1:{deployment.port('broker-1', 'broker')}"
    with Producer(broker_list=broker) as producer:
        producer.send("login", [f"<script>window.wrong=1</script>{mark}".encode(), encode(login)])
        producer.flush()


def test_script_in_messages_and_headers_is_text(open_page: Open, deployment: Deployment) -> None:
    mark = uuid.uuid4().hex
    send_logins(deployment, mark)
    page = open_page("messages")
    seen = 0
    for number in (0, 1):  # the producer chose the partition
        show(page, f"messages?dc=live&topic=login&partition=1-{number}")
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
        cells = deployment.ask("/api/cells?topic=login").get("cells", [])
        return max(
            (int(cell["window_start_ms"]) for cell in cells if cell["server"] == EVIL), default=0
        )

    begins_ms = wait_until(window_ms, "the audit has counted the hostile server")
    begins = time.strftime("%H:%M:%S", time.localtime(begins_ms / 1000))
    show(page, "audit")
    page.get_by_label(f"login, window {begins}").click()
    expect(page.locator("#detail")).to_contain_text("onerror")
    assert page.evaluate("window.wrong") is None
