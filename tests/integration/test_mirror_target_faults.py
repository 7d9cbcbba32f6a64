"""The target frozen, full, and killed while the mirror copies: nothing lost, order kept.

Short by default. `make test-faults` (FAULT_ROUNDS above 10) writes 42 MB and freezes for a minute,
with the settings that the mirror has by itself.
"""

import contextlib
import json
import os
import resource
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.mirrors import Mirrors, check_copies, two_clusters
from tests.support.waiting import DEADLINE_S, wait_until

IS_LONG = int(os.environ.get("FAULT_ROUNDS", "0")) > 10
MESSAGES = 12_500 if IS_LONG else 1_500  # per partition and step: 4 steps, 4 partitions, 210 bytes
FREEZE_S = 60.0 if IS_LONG else 0.0
PATIENCE_S = 300 if IS_LONG else DEADLINE_S

pytestmark = [pytest.mark.integration, pytest.mark.timeout(0 if IS_LONG else 600)]


def partitions(mirrors: Mirrors) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mirrors.status()["partitions"]
    return found


def wait_stuck(mirrors: Mirrors) -> None:
    """Until every copy has something to say."""
    wait_until(
        lambda: len(partitions(mirrors)) == 4 and all(p["trouble"] for p in partitions(mirrors)),
        lambda: json.dumps(mirrors.status(), indent=1),
        PATIENCE_S,
    )


def limit_files(mirrors: Mirrors, size: int) -> None:
    """No file of a target broker grows above `size` bytes: a full disk, as far as it sees."""
    for broker in mirrors.offline.brokers.values():
        _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, hard))


def test_a_target_frozen_full_and_killed(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with (
        two_clusters(zookeeper, tmp_path) as clusters,
        contextlib.closing(Mirrors(*clusters, tmp_path)) as mirrors,
    ):
        command = mirrors.start(mirror_barrier_timeout_ms=10_000 if IS_LONG else 500)
        mirrors.live.write(mirrors.topic, MESSAGES)
        mirrors.wait_drained(timeout_s=PATIENCE_S)

        for broker in mirrors.offline.brokers.values():
            broker.pause()
        mirrors.live.write(mirrors.topic, MESSAGES)
        wait_stuck(mirrors)
        threading.Event().wait(FREEZE_S)
        for broker in mirrors.offline.brokers.values():
            broker.resume()
        mirrors.wait_drained(timeout_s=PATIENCE_S)

        # Less than any partition will have: what came twice in the freeze makes some larger.
        smallest = min(mirrors.offline.ends(mirrors.topic).values())
        limit_files(mirrors, smallest + 100_000)
        mirrors.live.write(mirrors.topic, MESSAGES)
        wait_stuck(mirrors)
        assert not mirrors.status()["drained"]
        limit_files(mirrors, resource.RLIM_INFINITY)
        mirrors.wait_drained(timeout_s=PATIENCE_S)

        mirrors.live.write(mirrors.topic, MESSAGES // 2)  # under way when they die
        for broker in mirrors.offline.brokers.values():
            broker.kill()
        mirrors.live.write(mirrors.topic, MESSAGES - MESSAGES // 2)
        wait_stuck(mirrors)
        for broker_id in list(mirrors.offline.brokers):
            mirrors.offline.start(broker_id)
        mirrors.wait_drained(timeout_s=PATIENCE_S)

        assert command.is_running, "no fault of the target ends the mirror"
        check_copies(mirrors)
        assert command.stop() == 0
