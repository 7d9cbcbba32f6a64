"""`kafka2011 zookeeper` before its JVM serves: a stop is heard, a port that is taken is said."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafka2011.services.zookeeper.app import run
from kafka2011.services.zookeeper.config import ZooKeeperConfig
from tests.support.waiting import wait_until


def config_of_silent_jvm(tmp_path: Path, client_port: int) -> ZooKeeperConfig:
    """Of a server whose JVM writes its process id to `pid` and never serves."""
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n", encoding="utf-8")
    java.chmod(0o755)
    (tmp_path / "zookeeper-3.9.5.jar").touch()
    return ZooKeeperConfig(
        client_port=client_port,
        data_dir=tmp_path / "data",
        jars_dir=str(tmp_path),
        start_timeout_ms=50_000,
    )


def test_a_stop_while_it_waits_ends_the_jvm_with_status_0(tmp_path: Path) -> None:
    """As a server of an ensemble waits, for minutes, when the others are not there."""
    config = config_of_silent_jvm(tmp_path, client_port=0)
    stop = threading.Event()
    pid = tmp_path / "pid"

    def stop_when_the_jvm_runs() -> None:
        wait_until(lambda: pid.exists() and pid.read_text().strip(), "the JVM runs")
        stop.set()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(stop_when_the_jvm_runs)
        # In this thread: the kernel kills the child when the thread that started it ends.
        assert run(config, stop, java_home=str(tmp_path)) == 0
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_port_that_another_program_has_is_said_before_a_jvm_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        taken.settimeout(0)  # it answers no four-letter word
        config = config_of_silent_jvm(tmp_path, client_port=port)
        assert run(config, threading.Event(), java_home=str(tmp_path)) == 1
    said = caplog.text
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said
    assert "set zk.client.port to another port" in said
    assert not (tmp_path / "pid").exists()
