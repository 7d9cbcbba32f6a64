"""A broker in memory for the data source."""

from collections.abc import Iterator

import pytest

from kafka2011.consumer.spark.options import SourceOptions, parse_options
from kafka2011.consumer.spark.source import Kafka2011StreamReader
from kafka2011.protocol.requests import LATEST, OffsetsRequest, decode_request
from kafka2011.protocol.responses import encode_offsets_response
from tests.support.scripted_server import ScriptedBroker


class SegmentedBroker(ScriptedBroker):
    """A broker whose answers to Offsets requests also know segments, by partition and by time."""

    def __init__(self) -> None:
        self.segments: dict[int, list[int]] = {}  # partition -> starts, newest first
        self.by_time: dict[int, int] = {}
        self._readers: list[Kafka2011StreamReader] = []
        super().__init__()

    def options(self, **given: str) -> SourceOptions:
        """Options that read topic t, or the `ranges` given, from this broker, whose id is 11."""
        topic = {} if "ranges" in given else {"topic": "t"}
        return parse_options({"brokers": f"11:{self.host}:{self.port}", **topic, **given})

    def stream(self, **options: str) -> Kafka2011StreamReader:
        """A reader of topic t as a stream, which is stopped when the broker is closed."""
        self._readers.append(Kafka2011StreamReader(self.options(**options)))
        return self._readers[-1]

    def close(self) -> None:
        for reader in self._readers:
            reader.stop()
        super().close()

    def _answer(self, frame: bytes) -> bytes | None:
        request = decode_request(frame[4:])
        if isinstance(request, OffsetsRequest):
            if request.time in self.by_time:
                return encode_offsets_response([self.by_time[request.time]])
            if request.time == LATEST and request.count_max > 1:
                return encode_offsets_response(self.segments.get(request.partition, []))
        return super()._answer(frame)


@pytest.fixture
def broker() -> Iterator[SegmentedBroker]:
    with SegmentedBroker() as made:
        yield made
