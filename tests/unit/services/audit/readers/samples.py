"""The books of the live tier and its broker, for tests of what reads one into the other."""

from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination.cluster import BrokerAddress
from kafka2011.events.topics import PAGE_VIEW
from kafka2011.services.audit.books.progress import TierProgress, UnreadRange
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.readers.broker_reader import BrokerReader
from tests.support.clock import ManualClock
from tests.support.scripted_server import ScriptedBroker
from tests.unit.services.audit.samples import SERVER, T0, WINDOW_MS

NO_HEADER = (-1, "unreadable-header")


class LiveTier:
    """`failure` is raised instead of connecting to the broker."""

    def __init__(self, broker: ScriptedBroker, now_ms: int) -> None:
        self.broker = broker
        self.clock = ManualClock(T0)  # when the service started
        self.state = AuditState(("live", "offline"), WINDOW_MS, self.clock)
        self.clock.current_ms = now_ms
        self.failure: Exception | None = None

    def make_reader(
        self, tier: str = "live", broker_id: int = 1, fetch_bytes: int = 65536
    ) -> BrokerReader:
        return BrokerReader(
            self.state,
            tier,
            broker_id,
            connect=self._connect,
            clock=self.clock,
            fetch_bytes=fetch_bytes,
            poll_interval_ms=1,
        )

    def _connect(self, address: BrokerAddress) -> SimpleConsumer:
        if self.failure is not None:
            raise self.failure
        return SimpleConsumer(address.host, address.port)

    def append(self, *payloads: bytes, partition: int = 0, codec: int = 0) -> int:
        """Append page views; returns the end of the log."""
        return self.broker.append(PAGE_VIEW, partition, list(payloads), codec)

    @property
    def progress(self) -> TierProgress:
        return self.state.progress_of("live")

    def counts(self, topic: str = PAGE_VIEW) -> dict[tuple[int, str], int]:
        """The messages that were counted, by window and server."""
        cells = self.state.cells().items()
        return {key[1:]: cell.counted[0] for key, cell in cells if key.topic == topic}

    def counted(self, topic: str = PAGE_VIEW) -> int:
        return self.counts(topic).get((T0, SERVER), 0)

    def measured(self) -> int:
        """The number of messages whose delay is known."""
        return self.state.delays["live"].summary().count

    def unread(self) -> UnreadRange:
        """The only range that could not be read."""
        (found,) = self.state.progress.newest_unread(9)
        return found
