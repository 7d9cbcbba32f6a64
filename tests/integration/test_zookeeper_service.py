"""`kafka2011 zookeeper` as a real process: serves, keeps its data, stops clean, leaves nothing."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from kafka2011.coordination.four_letter_words import four_letter_word, is_serving
from kafka2011.runtime.process_state import is_alive
from tests.support.commands import RunningProcess, held_port, start_command
from tests.support.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.integration

START_S = 300  # three JVMs on a busy machine
PATIENT: dict[str, object] = {"zk.start.timeout.ms": START_S * 1000}


@contextlib.contextmanager
def client(*addresses: str) -> Iterator[KazooClient]:
    connected = KazooClient(",".join(addresses), timeout=20)
    connected.start(timeout=DEADLINE_S)
    yield connected
    connected.stop()
    connected.close()


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., RunningProcess]:
    """`start(**settings)`: a server on a free port, its data in the test's directory."""

    def started(**settings: object) -> RunningProcess:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        defaults = {"zk.client.port": 0, "data.dir": tmp_path / "zk", **PATIENT}
        return start_command("zookeeper", {**defaults, **named}, tmp_path / "log")

    return started


Start = Callable[..., RunningProcess]


def test_it_serves_registers_and_keeps_its_data_through_sigterm_and_sigkill(start: Start) -> None:
    with start(process_name="zookeeper-live") as server:
        serving = server.wait_for_event("serving")
        address = serving["address"]
        host, _, port = address.partition(":")
        assert host == "127.0.0.1"
        wait_until(lambda: is_serving(host, int(port)), "it serves")
        assert four_letter_word(host, int(port), "ruok", DEADLINE_S) == "imok"
        assert "not in the whitelist" in four_letter_word(host, int(port), "envi", DEADLINE_S)
        with client(address) as zookeeper:
            zookeeper.create("/kept", b"through SIGTERM")
            # It stands in its own process registry.
            alive = "/kafka2011/processes/live/zookeeper-live/alive"
            wait_until(lambda: zookeeper.exists(alive), "it has registered")
            assert address.encode() in zookeeper.get(alive)[0]
        # Quiet: nothing but our own lines.
        assert all(line.startswith("{") for line in server.log().splitlines()), server.log()
        assert server.stop() == 0
        assert not is_alive(serving["java_pid"])
        assert not is_serving(host, int(port))

    with start() as server:
        serving = server.wait_for_event("serving")
        with client(serving["address"]) as zookeeper:
            assert zookeeper.get("/kept")[0] == b"through SIGTERM"
            zookeeper.set("/kept", b"through SIGKILL")
        server.kill()
        wait_until(lambda: not is_alive(serving["java_pid"]), "the JVM went with its parent")

    with start() as server, client(server.wait_for_event("serving")["address"]) as zookeeper:
        assert zookeeper.get("/kept")[0] == b"through SIGKILL"


def test_a_jvm_that_dies_ends_the_process_with_status_1(start: Start) -> None:
    with start() as server:
        os.kill(server.wait_for_event("serving")["java_pid"], signal.SIGKILL)
        assert server.wait() == 1
        assert server.events("zookeeper_ended")[0]["status"] == -signal.SIGKILL


def test_a_taken_port_is_said_in_one_line_with_status_1(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with start(zk_client_port=taken.getsockname()[1]) as server:
            assert server.wait() == 1
            assert len(server.events("start_failed")) == 1


def test_missing_jars_are_one_line_and_status_1(start: Start, tmp_path: Path) -> None:
    with start(zk_jars_dir=tmp_path) as server:
        assert server.wait() == 1
        assert "pip install" in server.events("start_failed")[0]["detail"]


def test_an_ensemble_of_three_survives_the_loss_of_its_leader(tmp_path: Path) -> None:
    numbers = (1, 2, 3)
    ensemble = ",".join(f"{n}=127.0.0.1:{held_port()}:{held_port()}" for n in numbers)
    with contextlib.ExitStack() as stack:
        servers = []
        for n in numbers:
            settings = {"data.dir": tmp_path / str(n), "zk.client.port": 0, "zk.server.id": n}
            settings.update(PATIENT)
            settings["zk.ensemble"] = ensemble
            command = start_command("zookeeper", settings, tmp_path / f"log-{n}")
            servers.append(stack.enter_context(command))
        addresses = [
            str(server.wait_for_event("serving", START_S)["address"]) for server in servers
        ]
        zookeeper = stack.enter_context(client(*addresses))
        zookeeper.create("/kept", b"by all")

        def leads(address: str) -> bool:
            host, _, port = address.partition(":")
            return "Mode: leader" in four_letter_word(host, int(port), "srvr", DEADLINE_S)

        def leaders() -> list[RunningProcess]:
            return [server for server, at in zip(servers, addresses, strict=True) if leads(at)]

        wait_until(leaders, "one leads")[0].kill()

        def written() -> bool:
            try:
                zookeeper.set("/kept", b"by two")
                return True
            except KazooException:
                return False

        wait_until(written, "the others elect a leader")
        assert zookeeper.get("/kept")[0] == b"by two"


def test_what_does_not_listen_does_not_serve() -> None:
    assert not is_serving("127.0.0.1", 1)
