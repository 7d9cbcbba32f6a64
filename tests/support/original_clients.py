"""Clients that find a broker as 0.7.2's do, by a bare ZooKeeper client and raw requests: none of
our code decides what they know of brokers, or when."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from tests.support.brokers import RawClient
from tests.support.original_member import OriginalMember
from tests.support.raw_requests import OUT_OF_RANGE, fetch
from tests.support.replica_sets import BROKER_ID, FETCH_BYTES, TOPIC, shown

SESSION_S = 20.0
BACKOFF_S = 0.1
PATIENCE_S = 10.0  # with an answer
Address = tuple[str, int]


def address_in(client: KazooClient, broker_id: str) -> Address:
    """Raises NoNodeError."""
    _, host, port = client.get(f"/brokers/ids/{broker_id}")[0].decode().rsplit(":", 2)
    return host, int(port)


class OriginalBrokers:
    """What 0.7.2's producer knows: it looks at the children of /brokers/ids when they change, and
    at the address of an id that was not there the last time. So an id that goes and comes back
    between two looks keeps its dead address for ever."""

    def __init__(self, zk_connect: str, describe: Callable[[], str]) -> None:
        self.describe = describe
        self._known: dict[str, Address] = {}
        self._client = KazooClient(hosts=zk_connect, timeout=SESSION_S)
        self._client.start(timeout=SESSION_S)
        self._client.ChildrenWatch("/brokers/ids", self._look)

    def _look(self, ids: list[str]) -> None:
        for gone in self._known.keys() - set(ids):
            del self._known[gone]
        for new in set(ids) - self._known.keys():
            with contextlib.suppress(NoNodeError):
                self._known[new] = address_in(self._client, new)

    def connect(self) -> RawClient:
        address = self._known.get(str(BROKER_ID))
        if address is None:
            raise ConnectionRefusedError("no broker is known")
        return RawClient(*address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


class OriginalConsumer:
    """A group of one, as 0.7.2's: rebalances when the topic's brokers change, commits before it,
    goes on at what is stored; a fetcher that fails twice has ended until the next rebalance."""

    def __init__(self, zk_connect: str, history: list[dict[str, Any]]) -> None:
        self.problems: list[str] = []
        self.consumed: list[str] = []
        self.position = 0
        self._history = history
        self._fetcher: RawClient | None = None
        self._address: Address = ("", 0)
        self._is_over = threading.Event()
        self._must_rebalance = threading.Event()
        topic = TOPIC.decode()
        self._member = OriginalMember(
            zk_connect, "original", "original_1-1", f'{{ "{topic}": 1 }}', timeout_s=SESSION_S
        )
        path = f"/brokers/topics/{topic}"
        self._member.client.ensure_path(path)
        self._member.client.ChildrenWatch(path, self._brokers_changed)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _brokers_changed(self, _: list[str]) -> None:
        """What the fetcher waits for is given up."""
        self._must_rebalance.set()
        fetcher = self._fetcher
        if fetcher is not None:
            with contextlib.suppress(OSError):
                fetcher.socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while not self._is_over.is_set():
            if self._must_rebalance.is_set():
                self._must_rebalance.clear()
                self._rebalance()
            if self._fetcher is None or not self._fetch():
                self._must_rebalance.wait(BACKOFF_S)

    def _rebalance(self) -> None:
        self._end_fetcher()
        member, topic = self._member, TOPIC.decode()
        for partition in member.owned.get(topic, []):
            member.commit(topic, partition, self.position)
        try:
            member.rebalance()
            owned = member.owned.get(topic, [])
            if not owned:
                return
            broker, _, _ = owned[0].partition("-")
            self._address = address_in(member.client, broker)
            path = f"{member.root}/offsets/{topic}/{owned[0]}"
            self.position = int(member.client.get(path)[0]) if member.client.exists(path) else 0
        except KazooException:  # a broker or ZooKeeper went meanwhile; the next attempt is later
            self._is_over.wait(BACKOFF_S)
            self._must_rebalance.set()
            return
        with contextlib.suppress(OSError):
            self._connect()

    def _connect(self) -> None:
        fetcher = RawClient(*self._address)
        fetcher.socket.settimeout(PATIENCE_S)
        self._fetcher = fetcher

    def _end_fetcher(self) -> None:
        if self._fetcher is not None:
            self._fetcher.close()
        self._fetcher = None

    def _fetch(self) -> bool:
        """One request; whether anything came."""
        answer = self._ask()
        if answer == OUT_OF_RANGE:
            self.problems.append(f"error 1 at {self.position}")
            self._is_over.set()
            return False
        found = list(shown(answer, self.position))
        for event in found:
            self._history.append({"f": "poll", **event})
            self.consumed.append(event["id"])
            self.position = event["next_offset"]
        return bool(found)

    def _ask(self) -> bytes:
        """As 0.7's low-level consumer: what fails is repeated once on a new connection."""
        for _ in range(2):
            try:
                if self._fetcher is None:
                    self._connect()
                assert self._fetcher is not None
                answer = self._fetcher.ask(fetch(TOPIC, self.position, 0, FETCH_BYTES))
            except OSError:
                answer = b""
            if answer:
                return answer
            self._end_fetcher()
            if self._must_rebalance.is_set():
                break
        return b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._end_fetcher()
        self._member.__exit__()
