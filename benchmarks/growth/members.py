"""How long a real group takes to share its partitions, and what that costs ZooKeeper.

One ZooKeeper server; the members are consumers with sessions of their own, in one process, so that
its interpreter is a part of the seconds, and no part of the requests.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.group_scale import Group
from benchmarks.running_broker import RunningBroker, running_broker
from kafka2011.consumer.paper_api import Consumer
from kafka2011.coordination.four_letter_words import four_letter_word
from kafka2011.coordination.zookeeper import ZooKeeperRegistry
from kafka2011.producer import Producer
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.waiting import wait_until
from tests.support.zookeeper import start_zookeeper

TOPIC = "bench"
PARTITIONS = 128  # two for each of the most members
SESSION_MS = 30_000
LONGEST_S = 120.0
LOOK_S = 0.005


def measure(data_dir: Path, values: tuple[int, ...]) -> Iterator[dict[str, float]]:
    """A group of its own at each number of members."""
    with (
        tempfile.TemporaryDirectory(dir=data_dir) as directory,
        start_zookeeper(Path(directory).resolve() / "zookeeper") as zookeeper,
    ):
        connect = f"{zookeeper.host}:{zookeeper.port}"
        with running_broker(
            data_dir, enable_zookeeper="true", zk_connect=connect, num_partitions=PARTITIONS
        ) as broker:
            _make_topic(broker, connect)
            for count in values:
                yield _of_group(zookeeper, connect, count)


def _make_topic(broker: RunningBroker, connect: str) -> None:
    with Producer(broker_list=broker.broker_list) as producer:
        producer.send(TOPIC, [b""])
        producer.flush()
    registry = ZooKeeperRegistry(connect)
    registry.start()
    try:
        wait_until(lambda: registry.children(f"/brokers/topics/{TOPIC}"), "the topic")
    finally:
        registry.close()


def _of_group(zookeeper: ZooKeeperServer, connect: str, count: int) -> dict[str, float]:
    with ExitStack() as stack:

        def member() -> Consumer:
            registry = ZooKeeperRegistry(connect, SESSION_MS)
            stack.callback(registry.close)
            registry.start()
            one = Consumer(registry, group_id=f"of-{count}", autocommit_enable=False)
            stack.callback(one.shutdown)
            return one

        all_members = [member() for _ in range(count)]
        before = _received(zookeeper)
        started_s = _seconds(all_members, all_members)
        requests = _received(zookeeper) - before
        last = member()
        joined_s = _seconds([*all_members, last], [last])
    simulated = next(Group(count, 1, PARTITIONS, seed=1).moments())
    return {
        "started_s": started_s,
        "joined_s": joined_s,
        "requests": requests,
        "simulated_requests": simulated.requests,
        "simulated_s": simulated.seconds,
    }


def _seconds(group: list[Consumer], joining: list[Consumer]) -> float:
    """Until every partition is owned once and every member has settled."""
    began = time.perf_counter()
    for one in joining:
        one.create_message_streams(TOPIC)

    def is_shared() -> bool:
        owned = [name for one in group for name in one.owned()]
        return len(owned) == len(set(owned)) == PARTITIONS and all(one.is_settled for one in group)

    _wait(is_shared)
    return time.perf_counter() - began


def _wait(condition: Callable[[], bool]) -> None:
    wait_until(condition, "the group has not settled", LONGEST_S, poll_s=LOOK_S)


def _received(zookeeper: ZooKeeperServer) -> int:
    """Requests so far, the questions of this function included."""
    answer = four_letter_word(zookeeper.host, zookeeper.port, "srvr")
    [line] = [line for line in answer.splitlines() if line.startswith("Received:")]
    return int(line.split()[1])
