"""`kafka2011 zookeeper` hears that it should stop before its JVM serves, too."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kafka2011.services.zookeeper.app import run
from kafka2011.services.zookeeper.config import ZooKeeperConfig
from tests.support.waiting import wait_until


def test_a_stop_while_it_waits_ends_the_jvm_with_status_0(tmp_path: Path) -> None:
    """As a server of an ensemble waits, for minutes, when the others are not there."""
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n", encoding="utf-8")
    java.chmod(0o755)
    (tmp_path / "zookeeper-3.9.5.jar").touch()
    config = ZooKeeperConfig(
        data_dir=tmp_path / "data", jars_dir=str(tmp_path), start_timeout_ms=50_000
    )
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
