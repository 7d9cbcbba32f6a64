"""Brokers' addresses for a consumer: from the registry, remembered while it does not answer."""

from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.errors import BrokerUnavailable
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode, CoordinationError
from kafka2011.coordination.registry import Registry
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.shared_settings import Address

log = get_logger(__name__)


class BrokerAddresses:
    """The brokers' addresses; thread-safe."""

    def __init__(self, registry: Registry, config: ConsumerConfig) -> None:
        self._registry = registry
        self._config = config
        self._known: dict[int, Address] = {}

    def find(self, broker_id: int) -> Address | None:
        """The published address; the last known one while the registry does not answer."""
        path = paths.broker_id_path(broker_id)
        try:
            stored = self._registry.get(path)
            if stored is None:
                return None
            self._known[broker_id] = paths.decode_broker(stored.value)
        except BadZnode as error:
            log.error("znode_ignored", path=path, reason=str(error))
            return None
        except CoordinationError:
            pass
        return self._known.get(broker_id)

    def dialled(self, broker_id: int) -> Address | None:
        """Where to connect to: the published address, mapped by `address.map`."""
        published = self.find(broker_id)
        return None if published is None else self._config.dialled(published)

    def client(self, broker_id: int, timeout_ms: int | None = None) -> SimpleConsumer:
        """A new connection to the broker, with `socket.timeout.ms`, or `timeout_ms` if that is
        less. Raises BrokerUnavailable when the broker is not registered."""
        published = self.find(broker_id)
        if published is None:
            raise BrokerUnavailable(f"broker {broker_id} is not registered")
        most_ms = self._config.socket_timeout_ms
        return SimpleConsumer(*self._config.dialled(published), min(timeout_ms or most_ms, most_ms))
