"""A synchronous producer's encoding and writing: payloads to message sets, sets to connections.

The producer chooses the brokers and holds its lock.
"""

from collections.abc import Callable, Mapping, Sequence

from kafka2011.producer.config import ProducerConfig
from kafka2011.producer.connection import BrokerConnection
from kafka2011.producer.connections import Connections
from kafka2011.producer.discovery import Target
from kafka2011.producer.errors import BrokerUnavailable, Link
from kafka2011.producer.requests import (
    EncodedSet,
    SetPart,
    TopicNames,
    encode_sets,
    pack_requests,
    request_frame,
)
from kafka2011.producer.stats import ProducerStats
from kafka2011.protocol.errors import MessageSizeTooLarge
from kafka2011.protocol.message_set import encode as encode_plain
from kafka2011.protocol.requests import produce_head
from kafka2011.runtime.shared_settings import Address


class SetSends:
    """Encodes by the settings, and writes through `connections`; counts in `stats`."""

    def __init__(
        self,
        config: ProducerConfig,
        connections: Connections,
        topic_names: TopicNames,
        stats: ProducerStats,
    ) -> None:
        self._connections = connections
        self._topic_names = topic_names
        self._stats = stats
        # Read at every send.
        self._connection = connections.of
        self._codec = config.compression_codec
        self._message_bytes_max = config.payload_bytes_max
        self._limits = config.request_limits

    def encoded(self, topic: str, payloads: Sequence[bytes]) -> Sequence[EncodedSet]:
        """The payloads in as many sets as needed, usually one.

        Raises IllegalTopicName and MessageSizeTooLarge.
        """
        self._topic_names[topic]  # checked before anything is encoded
        try:
            if not self._codec:  # the usual case, and it usually fits
                encoded = encode_plain(payloads)
                size_max = self._message_bytes_max
                if len(encoded) <= size_max or (
                    len(encoded) <= self._limits.set_bytes_max
                    and max(map(len, payloads)) <= size_max
                ):
                    return ((encoded, 0),)
            return encode_sets(payloads, self._codec, self._limits)
        except MessageSizeTooLarge:
            self._stats.refused_too_large += 1
            raise

    def send(self, target: Target, topic: str, message_set: bytes) -> Link:
        """Write one set to its broker, as one Produce; returns the connection over which it went.
        Raises BrokerUnavailable."""
        name = self._topic_names[topic]
        set_bytes = len(message_set)
        connection = self._connection(target.address)
        head = produce_head(name, target.partition, set_bytes)
        connection.send(head, topic, set_bytes, tail=message_set)
        stats = self._stats
        stats.sends += 1
        stats.set_bytes += set_bytes
        if connection.is_reconnect_due():
            self._connections.reconnect(connection)
        return connection.link

    def send_grouped(
        self,
        by_broker: Mapping[Address, Sequence[tuple[SetPart, int]]],
        on_failure: Callable[[Address], object],
        on_written: Callable[[Link, Sequence[SetPart]], object],
    ) -> None:
        """Write each broker's parts, given with their decompressed sizes; `on_written` gets those
        of each request that was, and its connection.

        If a broker fails, `on_failure` is called with its address, the other brokers' parts are
        still written, and then the first BrokerUnavailable is raised.
        """
        failure: BrokerUnavailable | None = None
        for address, found in by_broker.items():
            connection = self._connection(address)
            sets, unpacked = [part for part, _ in found], [size for _, size in found]
            try:
                for parts in pack_requests(sets, unpacked, self._limits):
                    self._send_request(connection, parts)
                    on_written(connection.link, parts)
            except BrokerUnavailable as error:
                on_failure(address)
                failure = failure or error
        if failure is not None:
            raise failure

    def _send_request(self, connection: BrokerConnection, parts: Sequence[SetPart]) -> None:
        sizes = [(part.topic, len(part.message_set)) for part in parts]
        connection.send(request_frame(parts), *sizes[0], sizes[1:])
        self._stats.sends += len(parts)
        self._stats.set_bytes += sum(size for _, size in sizes)
        if connection.is_reconnect_due():
            self._connections.reconnect(connection)
