"""`kafka2011 zookeeper` as a real process: serves, keeps its data, stops clean, leaves nothing."""

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from kafka2011.services.zookeeper.server import (
    NotServing,
    four_letter_word,
    is_serving,
    wait_until_serving,
)
from tests.support.commands import start_command
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def client(address: str) -> KazooClient:
    connected = KazooClient(address, timeout=5)
    connected.start(timeout=20)
    return connected


def close(connected: KazooClient) -> None:
    connected.stop()
    connected.close()


def test_data_survives_sigterm_and_sigkill(tmp_path: Path) -> None:
    settings = {"zk.client.port": 0, "data.dir": tmp_path / "zk"}
    with start_command("zookeeper", settings, tmp_path / "log") as server:
        serving = server.wait_for_event("serving")
        zookeeper = client(serving["address"])
        zookeeper.create("/kept", b"through SIGTERM")
        close(zookeeper)
        assert server.stop() == 0
        assert not is_alive(serving["java_pid"])

    with start_command("zookeeper", settings, tmp_path / "log") as server:
        serving = server.wait_for_event("serving")
        zookeeper = client(serving["address"])
        assert zookeeper.get("/kept")[0] == b"through SIGTERM"
        zookeeper.set("/kept", b"through SIGKILL")
        close(zookeeper)
        server.kill()
        wait_until(lambda: not is_alive(serving["java_pid"]), "the JVM went with its parent")

    with start_command("zookeeper", settings, tmp_path / "log") as server:
        zookeeper = client(server.wait_for_event("serving")["address"])
        assert zookeeper.get("/kept")[0] == b"through SIGKILL"
        close(zookeeper)


def test_it_stands_in_its_own_process_registry(tmp_path: Path) -> None:
    settings = {"zk.client.port": 0, "data.dir": tmp_path / "zk", "process.name": "zookeeper-live"}
    with start_command("zookeeper", settings, tmp_path / "log") as server:
        address = server.wait_for_event("serving")["address"]
        zookeeper = client(address)
        alive = "/kafka2011/processes/live/zookeeper-live/alive"
        wait_until(lambda: zookeeper.exists(alive), "it has registered")
        assert address.encode() in zookeeper.get(alive)[0]
        close(zookeeper)
        assert server.stop() == 0


def test_four_letter_words_and_log(tmp_path: Path) -> None:
    settings = {"zk.client.port": 0, "data.dir": tmp_path / "zk"}
    with start_command("zookeeper", settings, tmp_path / "log") as server:
        host, _, port = server.wait_for_event("serving")["address"].partition(":")
        assert host == "127.0.0.1"
        wait_until_serving(host, int(port), time.monotonic() + 10)
        assert four_letter_word(host, int(port), "ruok") == "imok"
        assert "not in the whitelist" in four_letter_word(host, int(port), "envi")
        # Quiet: nothing but our own lines.
        assert all(line.startswith("{") for line in server.log().splitlines()), server.log()
        server.stop()
        assert not is_serving(host, int(port))


def test_a_jvm_that_dies_ends_the_process_with_status_1(tmp_path: Path) -> None:
    settings = {"zk.client.port": 0, "data.dir": tmp_path / "zk"}
    with start_command("zookeeper", settings, tmp_path / "log") as server:
        os.kill(server.wait_for_event("serving")["java_pid"], signal.SIGKILL)
        assert server.wait(20) == 1
        assert server.events("zookeeper_ended")[0]["status"] == -signal.SIGKILL


def test_a_taken_port_is_said_in_one_line_with_status_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = {"zk.client.port": taken.getsockname()[1], "data.dir": tmp_path / "zk"}
        with start_command("zookeeper", settings, tmp_path / "log") as server:
            assert server.wait(40) == 1
            assert len(server.events("start_failed")) == 1


def test_missing_java_exits_2(tmp_path: Path) -> None:
    settings = {"data.dir": tmp_path / "zk", "zk.jars.dir": tmp_path}
    with start_command("zookeeper", settings, tmp_path / "log") as server:
        assert server.wait(20) == 2
        assert "pip install" in server.events("start_failed")[0]["detail"]


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def test_an_ensemble_of_three_survives_the_loss_of_its_leader(tmp_path: Path) -> None:
    ports = free_ports(6)
    ensemble = ",".join(
        f"{number}=127.0.0.1:{ports[2 * number - 2]}:{ports[2 * number - 1]}"
        for number in (1, 2, 3)
    )
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(
                start_command(
                    "zookeeper",
                    {
                        "zk.client.port": 0,
                        "data.dir": tmp_path / str(number),
                        "zk.ensemble": ensemble,
                        "zk.server.id": number,
                    },
                    tmp_path / f"log-{number}",
                )
            )
            for number in (1, 2, 3)
        ]
        addresses = [str(server.wait_for_event("serving")["address"]) for server in servers]
        zookeeper = client(",".join(addresses))
        zookeeper.create("/kept", b"by all")

        def leads(address: str) -> bool:
            host, _, port = address.partition(":")
            return "Mode: leader" in four_letter_word(host, int(port), "srvr")

        [leader] = [server for server, at in zip(servers, addresses, strict=True) if leads(at)]
        leader.kill()

        def written() -> bool:
            try:
                zookeeper.set("/kept", b"by two")
                return True
            except KazooException:
                return False

        wait_until(written, "the others elect a leader", 60)
        assert zookeeper.get("/kept")[0] == b"by two"
        close(zookeeper)


def test_wait_until_serving_gives_up_at_its_deadline() -> None:
    with pytest.raises(NotServing):
        wait_until_serving("127.0.0.1", 1, time.monotonic())
