"""Our own producer as a load: sends, and asks for a barrier, through its public methods."""

import contextlib

from kafka2011 import Producer
from kafka2011.coordination.errors import CoordinationUnavailable
from kafka2011.producer.errors import KafkaError
from tests.support.replica_sets import TOPIC, Load, ReplicaSet, sent


class OurProducer(Load):
    """One with request.required.acks=-1 that finds its broker by ZooKeeper, and nothing that
    reads. After an error it is made anew, and goes on with other messages."""

    def __init__(
        self, replicas: ReplicaSet, zk_connect: str, *, patience_s: float, pause_s: float
    ) -> None:
        self._zk_connect = zk_connect
        super().__init__(replicas, replicas.history, 1, patience_s=patience_s, pause_s=pause_s)

    def _read(self) -> None:
        pass

    def _produce(self, number: int) -> None:
        connection = 0
        while not self._is_over.is_set():
            connection += 1
            with contextlib.suppress(KafkaError, CoordinationUnavailable):
                self._send_by_ours(f"{number}.{connection}")
            self._is_over.wait(0.05)

    def _send_by_ours(self, connection: str) -> None:
        sequence = 0
        with Producer(
            zk_connect=self._zk_connect,
            required_acks=-1,
            socket_timeout_ms=round(self._patience_s * 1000),
        ) as producer:
            while not self._is_over.is_set():
                names = [f"{connection}.{sequence + number}" for number in range(5)]
                sequence += len(names)
                payloads = [f"{name}:ours".encode() for name in names]
                self.history += [sent(0, *one) for one in zip(names, payloads, strict=True)]
                producer.send(TOPIC.decode(), payloads)
                producer.flush(round(self._patience_s * 1000))
                self.confirmed(names)
                self._is_over.wait(self._pause_s)
