"""A group member that reads and writes ZooKeeper as 0.7.2's ZookeeperConsumerConnector does, by a
bare client: none of our code decides what it reads or writes."""

import json
import re
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from tests.support.waiting import DEADLINE_S, wait_until


class OriginalMember:
    """One stream; `subscription` is the exact text of its registration."""

    def __init__(
        self,
        zk_connect: str,
        group: str,
        consumer_id: str,
        subscription: str,
        timeout_s: float = 20.0,
    ) -> None:
        self.consumer_id = consumer_id
        self.root = f"/consumers/{group}"
        self.client = KazooClient(hosts=zk_connect, timeout=timeout_s)
        self.client.start(timeout=DEADLINE_S)
        self.owned: dict[str, list[str]] = {}
        self._create(f"ids/{consumer_id}", subscription)

    def rebalance(self) -> None:
        """Attempts until everything wanted is claimed."""
        wait_until(self._attempt, lambda: f"{self.consumer_id} owns its share: {self.owned}")

    def _attempt(self) -> bool:
        self._release()
        for topic in self._streams(self.consumer_id):
            for partition in self._share(topic):
                try:
                    self._create(f"owners/{topic}/{partition}", f"{self.consumer_id}-0")
                except NodeExistsError:
                    self._release()
                    return False
                self.owned.setdefault(topic, []).append(partition)
        return True

    def _share(self, topic: str) -> list[str]:
        """The partitions of its one stream."""
        threads = sorted(
            f"{member}-{number}"
            for member in self.client.get_children(f"{self.root}/ids")
            for number in range(self._streams(member).get(topic, 0))
        )
        partitions = sorted(
            f"{broker}-{number}"
            for broker in self.client.get_children(f"/brokers/topics/{topic}")
            for number in range(int(self._read(f"/brokers/topics/{topic}/{broker}")))
        )
        each, more = divmod(len(partitions), len(threads))
        k = threads.index(f"{self.consumer_id}-0")
        first = each * k + min(k, more)
        return partitions[first : first + each + (1 if k < more else 0)]

    def commit(self, topic: str, partition: str, offset: int) -> None:
        path = f"{self.root}/offsets/{topic}/{partition}"
        self.client.ensure_path(path)
        self.client.set(path, str(offset).encode())

    def _release(self) -> None:
        for topic, partitions in self.owned.items():
            for partition in partitions:
                self.client.delete(f"{self.root}/owners/{topic}/{partition}")
        self.owned = {}

    def _streams(self, member: str) -> dict[str, int]:
        try:
            text = self._read(f"{self.root}/ids/{member}")
        except NoNodeError:
            return {}
        if text[0] in "*!":
            _, count, pattern = text.split(text[0], 2)
            return {
                topic: int(count)
                for topic in self.client.get_children("/brokers/topics")
                if (re.fullmatch(pattern, topic) is not None) == (text[0] == "*")
            }
        found: dict[str, int] = json.loads(text)
        return found

    def _create(self, path: str, value: str) -> None:
        self.client.create(f"{self.root}/{path}", value.encode(), ephemeral=True, makepath=True)

    def _read(self, path: str) -> str:
        return str(self.client.get(path)[0].decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop()
        self.client.close()
