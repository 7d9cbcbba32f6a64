"""docs/hosts.md with network namespaces as hosts: three live ones, two offline ones, each process
with the page's file. The live hosts' names stand for IPv6 addresses, the offline ones' for IPv4."""

import contextlib
import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.commands import KAFKA2011, RunningProcess, execute
from tests.support.namespaces import hosts
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# The last one is what the host's name stands for.
ADDRESSES = {
    **{f"live{n}": (f"10.0.1.{n}/16", f"fd00:11::{n}/64") for n in (1, 2, 3)},
    **{f"offline{n}": (f"fd00:11::1{n}/64", f"10.0.2.{n}/16") for n in (1, 2)},
}
LIVE = "live1:2181,live2:2181,live3:2181"
TOPIC = "orders"


def files() -> dict[str, str]:
    """Process -> its file on the page."""
    text = (ROOT / "docs/hosts.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```properties\n(.*?)```", text, re.DOTALL)
    return {block[2:].partition(".")[0]: block for block in blocks}


def file_of(process: str, host: str, directory: Path) -> Path:
    """The page's file as the host has it: what differs there by host is its number."""
    number = int(host[-1])
    own = re.findall(r"10\.0\.\d\.\d", " ".join(ADDRESSES[host]))[0]
    text = files()[process].replace("/var/lib/kafka2011", str(directory / host))
    text = re.sub(r"(?m)^metrics.bind=.*", f"metrics.bind={own}", text)
    broker_id = number if host.startswith("live") else 10 + number
    text = re.sub(r"(?m)^brokerid=.*", f"brokerid={broker_id}", text)
    text = re.sub(r"(?m)^hostname=.*", f"hostname={host}", text)
    text = re.sub(r"(?m)^process.name=(.*-)1$", rf"process.name=\g<1>{broker_id}", text)
    text = re.sub(r"(?m)^zk.server.id=.*", f"zk.server.id={number}", text)
    if host.startswith("live"):
        text = text.replace("=0.0.0.0\n", "=::\n")
    else:
        text = re.sub(r"(?m)^zk.connect=.*", "zk.connect=offline1:2181", text)
        text = re.sub(r"(?m)^zk.(server|ensemble).*\n", "", text)
    path = directory / host / f"{process}.properties"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_three_hosts_live_and_two_offline_and_one_may_be_lost(tmp_path: Path) -> None:
    with hosts(ADDRESSES) as inside, contextlib.ExitStack() as stack:
        running: dict[tuple[str, str], RunningProcess] = {}

        def start(process: str, *where: str) -> None:
            for host in where:
                file = file_of(process, host, tmp_path)
                words = [*inside[host], *KAFKA2011, process, str(file)]
                log = tmp_path / host / f"{process}.log"
                running[process, host] = stack.enter_context(RunningProcess(words, log))

        def on(host: str, *words: str, text: str = "", status: int | None = 0) -> str:
            done = execute([*inside[host], *KAFKA2011, *words], text=text, status=status)
            return done.stdout if status is not None else str(done.returncode)

        def send(first: int, last: int) -> None:
            lines = "".join(f"order {number}\n" for number in range(first, last))
            on("live1", "console-producer", "--zookeeper", LIVE, "--topic", TOPIC, text=lines)

        def arrived(count: int) -> list[str]:
            words = ("--topic", TOPIC, "--group", "readers", "--max-messages", str(count))
            until = ("--consumer-timeout-ms", "120000", "--set", "autooffset.reset=smallest")
            words += until
            return on(
                "offline2", "console-consumer", "--zookeeper", "offline1:2181", *words
            ).splitlines()

        start("zookeeper", "live1", "live2", "live3", "offline1")
        for one in running.values():
            one.wait_for_event("serving")
        start("broker", "live1", "live2", "live3", "offline1", "offline2")
        start("mirror", "offline1", "offline2")
        for (process, _), one in running.items():
            if process == "broker":
                one.wait_for_event("serving")
        send(0, 100)
        assert sorted(arrived(100)) == sorted(f"order {number}" for number in range(100))
        words = ("status", "--zookeeper", LIVE, "--zookeeper", "offline1:2181")
        wait_until(lambda: on("live1", *words, status=None) == "0", "every process serves")

        running["broker", "live3"].kill()
        running["zookeeper", "live3"].stop()
        wait_until(lambda: " down " in on("live1", *words, status=1), "the host is missed")
        # Until its session has ended its broker is registered, and producers are sent there.
        registered = ("zookeeper", "ls", "--zookeeper", LIVE, "/brokers/ids")
        wait_until(lambda: on("live1", *registered) == "1\n2\n", "its session has ended")
        send(100, 200)
        assert sorted(arrived(100)) == sorted(f"order {number}" for number in range(100, 200))
