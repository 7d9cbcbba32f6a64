"""A group member that reads and writes ZooKeeper as 0.7.2's ZookeeperConsumerConnector does, by a
bare client: none of our code decides what it reads or writes."""

import json
import re
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from tests.support.waiting import wait_until


class OriginalMember:
    """One stream; `subscription` is the exact text of its registration."""

    def __init__(self, zk_connect: str, group: str, consumer_id: str, subscription: str) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.client = KazooClient(hosts=zk_connect, timeout=6)
        self.client.start(timeout=20)
        self.owned: dict[str, list[str]] = {}
        path = f"/consumers/{group}/ids/{consumer_id}"
        self.client.create(path, subscription.encode(), ephemeral=True, makepath=True)

    def rebalance(self) -> None:
        """Attempts until everything wanted is claimed."""
        wait_until(self._attempt, lambda: f"{self.consumer_id} owns its share: {self.owned}", 30)

    def _attempt(self) -> bool:
        self._release()
        topics = self._streams(self.consumer_id)
        claimed: list[str] = []
        for topic in topics:
            threads = sorted(
                f"{member}-{number}"
                for member in self.client.get_children(f"/consumers/{self.group}/ids")
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
            mine = partitions[first : first + each + (1 if k < more else 0)]
            for partition in mine:
                path = f"/consumers/{self.group}/owners/{topic}/{partition}"
                try:
                    self.client.create(
                        path, f"{self.consumer_id}-0".encode(), ephemeral=True, makepath=True
                    )
                except NodeExistsError:
                    for made in claimed:
                        self.client.delete(made)
                    self.owned = {}
                    return False
                claimed.append(path)
            self.owned[topic] = mine
        return True

    def commit(self, topic: str, partition: str, offset: int) -> None:
        path = f"/consumers/{self.group}/offsets/{topic}/{partition}"
        self.client.ensure_path(path)
        self.client.set(path, str(offset).encode())

    def _release(self) -> None:
        for topic, partitions in self.owned.items():
            for partition in partitions:
                self.client.delete(f"/consumers/{self.group}/owners/{topic}/{partition}")
        self.owned = {}

    def _streams(self, member: str) -> dict[str, int]:
        try:
            text = self._read(f"/consumers/{self.group}/ids/{member}")
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

    def _read(self, path: str) -> str:
        return str(self.client.get(path)[0].decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop()
        self.client.close()
