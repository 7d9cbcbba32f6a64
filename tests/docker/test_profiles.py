"""The profiles of docker-compose.yml, each brought up for real beside the session's deployment."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafka2011.services.containers.engine import EngineError
from tests.docker.stack import DURATION_MS, EACH_SENDS, Stack, wait_until

pytestmark = [pytest.mark.docker, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(3600)]


def test_load_is_audited_like_everything_else(stack: Stack) -> None:
    load_rate = 2_000
    with stack.profile("load", LOAD_RATE=str(load_rate)):
        stack.sent_count += load_rate * DURATION_MS // 1000
        wait_until(lambda: stack.project.states()["load"].is_done, "the load ends")
        stack.wait_until_balanced()


def test_chaos_disturbs_the_link_and_mends_it(stack: Stack) -> None:
    with stack.profile("chaos", CHAOS_PAUSE_S="4"):
        stack.tell_fault("chaos")
        stack.send(1000, 100)
        chaos = stack.container("chaos")
        wait_until(
            lambda: chaos.logs().count(b"mended") >= 2,
            lambda: f"two faults and their mending: {chaos.logs()!r}",
        )
        assert chaos.logs().count(b"{") >= 2, "something was wrong in between"
    stack.tell_fault("chaos, healed")
    stack.wait_until_balanced()


def test_prometheus_reads_every_process(stack: Stack) -> None:
    def down() -> list[str]:
        try:
            answer = stack.ask("http://prometheus:9090/api/v1/targets?state=active")
        except (EngineError, ValueError) as error:
            return [str(error)]
        targets = answer["data"]["activeTargets"] or [{"health": "none", "scrapeUrl": "any"}]
        return [one["scrapeUrl"] for one in targets if one["health"] != "up"]

    def all_but_the_finished() -> bool:
        return all("frontend" in one for one in down())

    with stack.profile("observability"):
        wait_until(all_but_the_finished, lambda: f"not scraped: {down()}")


def test_scheduled_reports_run_beside_the_load_job_and_stand_in_the_history(
    stack: Stack, tmp_path: Path
) -> None:
    stack.send(200, 100)
    stack.wait_until_balanced()  # so there is a table to report on
    schedule = tmp_path / "schedule"
    schedule.write_text("every 10s report\n")
    schedule.chmod(0o644)

    def asked(url: str) -> Any:
        try:
            return stack.ask(url)
        except (EngineError, ValueError):
            return None

    def is_reported() -> bool:
        status = asked("http://schedule:8080/status")
        return bool(status and status["jobs"][0]["runs"] > status["jobs"][0]["failures"])

    def is_in_the_history() -> bool:
        found = asked("http://spark-history:8080/api/v1/applications?status=completed")
        return any(one["name"] == "report" for one in found or ())

    def log_of(service: str) -> bytes:
        return bytes(stack.container(service).logs())

    with stack.profile("spark", SCHEDULE=str(schedule)):
        wait_until(is_reported, lambda: f"a report: {log_of('schedule')!r}")
        assert stack.project.states()["loader"].health == "healthy"
        wait_until(is_in_the_history, lambda: f"its pages: {log_of('spark-history')!r}")


def test_a_second_live_datacenter_has_an_audit_of_its_own(stack: Stack) -> None:
    """The same broker ids and topics into the same offline brokers; both audits balance."""
    stack.wait_until_balanced()
    with stack.profile("two-live"):
        sending = stack.send(500, 100)
        found = stack.wait_until_balanced("west-audit", sent_count=EACH_SENDS)
        assert found["tiers"]["warehouse"]["count"] == EACH_SENDS
        stack.wait_until_sent(sending)
        summary = stack.wait_until_balanced()
        assert summary["tiers"]["offline"]["extra"] == 0
        command = "kafka2011 audit --url http://127.0.0.1:8080 --final --all --json"
        for audit, other in (("audit", "west-"), ("west-audit", "sender-")):
            cells = json.loads(stack.project.execute(audit, *command.split()))["cells"]
            assert not [cell for cell in cells if cell["server"].startswith(other)], audit
            assert stack.recount(audit) == 0, audit


@pytest.mark.parametrize("member", ["zookeeper-live", "zookeeper-live-2", "zookeeper-live-3"])
def test_one_of_three_zookeepers_dies_and_everything_goes_on(
    three_zookeepers: Stack, member: str
) -> None:
    stack = three_zookeepers
    stack.wait_until_balanced()
    stack.tell_fault(f"kill {member}")
    stack.container(member).kill()
    stack.wait_until_sent(stack.send(1000, 250))
    stack.wait_until_balanced()
    stack.container(member).start()
    stack.wait_until_all_serve()
