"""Events that carry registry ids as rows: both decoders, other versions, an absent registry."""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import fastavro
import pytest

from kafka2011.events import schemas
from kafka2011.events.codec_source import CodecSource
from kafka2011.events.forms import FORMS_DEFAULT
from kafka2011.events.registry_client import RegistryUnavailable
from kafka2011.events.topic_codec import TopicCodec, id_prefix
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse.load import tasks
from kafka2011.services.warehouse.load.columns import EventColumns
from kafka2011.services.warehouse.load.tasks import TaskSettings, run_task
from tests.support.registries import DirectRegistry
from tests.unit.services.warehouse.samples import (
    WINDOW_MS,
    ScriptedBroker,
    access_log_event,
    access_log_payload,
)

SUBJECT = "access-log-value"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[DirectRegistry]:
    found = DirectRegistry(tmp_path / "registry")
    found.client().id_of("other", '"int"')
    yield found
    found.close()


def codec_of(registry: DirectRegistry) -> TopicCodec:
    return TopicCodec(FORMS_DEFAULT, registry.client())


def payload(prefix: bytes, number: int) -> bytes:
    return prefix + access_log_payload(number)[17:]


def newer_schema(extra: dict[str, object]) -> str:
    schema = json.loads(schemas.schema_text(ACCESS_LOG))
    schema["fields"].append(extra)
    return json.dumps(schema)


def statuses(columns: EventColumns, payloads: Sequence[bytes]) -> list[int]:
    return columns.decode(payloads).batch.column("status").to_pylist()  # type: ignore[no-any-return]


def test_rows_are_those_of_the_2011_form(registry: DirectRegistry) -> None:
    codec = codec_of(registry)
    prefix = codec.prefix(ACCESS_LOG)
    payloads = [payload(prefix, number) for number in range(50)]
    columns = EventColumns(ACCESS_LOG, codec)
    wanted = EventColumns(ACCESS_LOG).decode([access_log_payload(n) for n in range(50)])
    for found in (columns.decode(payloads), columns.decode_in_python(payloads)):
        assert found.batch.equals(wanted.batch)
        assert not found.rejected
    assert registry.questions.count(f"GET /schemas/ids/{prefix[4]}") == 0  # it registered it itself


def test_events_of_another_version_are_rows_among_the_others(registry: DirectRegistry) -> None:
    codec = codec_of(registry)
    old = codec.prefix(ACCESS_LOG)
    text = newer_schema({"name": "country", "type": "string", "default": ""})
    new = id_prefix(registry.client().id_of(SUBJECT, text))
    payloads = [payload(old, 1), payload(new, 9) + b"\x04de", payload(old, 2)]
    assert statuses(EventColumns(ACCESS_LOG, codec), payloads) == [200, 404, 200]
    assert statuses(EventColumns(ACCESS_LOG, codec), payloads[1:]) == [404, 200]


def test_a_schema_that_differs_only_in_words_is_read_by_the_compiled_decoder(
    registry: DirectRegistry,
) -> None:
    codec = codec_of(registry)
    old = codec.prefix(ACCESS_LOG)
    text = json.dumps({**json.loads(schemas.schema_text(ACCESS_LOG)), "doc": "other words"})
    new = id_prefix(registry.client().id_of(SUBJECT, text))
    assert old != new
    columns = EventColumns(ACCESS_LOG, codec)
    for prefix in (old, new, old):
        assert statuses(columns, [payload(prefix, n) for n in range(10)]) == [200] * 9 + [404]


def test_values_that_fit_no_column_are_named_and_not_the_others(registry: DirectRegistry) -> None:
    schema = json.loads(schemas.schema_text(ACCESS_LOG))
    for part in schema["fields"]:
        if part["name"] == "status":
            part["type"] = "string"
    odd = id_prefix(registry.client().id_of("somewhere", json.dumps(schema)))
    codec = codec_of(registry)
    good = codec.prefix(ACCESS_LOG)
    event = access_log_event(1, status="two hundred")
    body = io.BytesIO()
    physical = schemas.without_logical_types(schema)
    fastavro.schemaless_writer(body, fastavro.parse_schema(physical), event)
    found = EventColumns(ACCESS_LOG, codec).decode(
        [payload(good, 1), odd + body.getvalue(), payload(good, 2)]
    )
    assert found.batch.num_rows == 2
    assert [reject.message_index for reject in found.rejected] == [1]


def test_while_the_registry_is_away_nothing_is_judged(registry: DirectRegistry) -> None:
    prefix = codec_of(registry).prefix(ACCESS_LOG)
    registry.is_down = True
    columns = EventColumns(ACCESS_LOG, codec_of(registry))
    for decode in (columns.decode, columns.decode_in_python):
        with pytest.raises(RegistryUnavailable):
            decode([payload(prefix, 1)])


class SourceOf(CodecSource):
    """A task's codec, with the registry of the test."""

    def __init__(self, codec: TopicCodec) -> None:
        super().__init__(FORMS_DEFAULT, known=codec.known())
        object.__setattr__(self, "_codec", codec)

    def codec(self) -> TopicCodec:
        return self._codec  # type: ignore[attr-defined, no-any-return]


def test_a_task_without_the_registry_loads_and_quarantines_nothing(
    registry: DirectRegistry, tmp_path: Path
) -> None:
    prefix = codec_of(registry).prefix(ACCESS_LOG)
    broker = ScriptedBroker()
    broker.log(ACCESS_LOG).append([payload(prefix, 1), prefix + b"no event", b"\0\0\0\3\3junk"])
    planned = [broker.plan(ACCESS_LOG)]
    codec = codec_of(registry)
    settings = TaskSettings(tmp_path, WINDOW_MS, {}, SourceOf(codec))
    registry.is_down = True
    (failed,) = run_task(planned, settings, broker.read)
    assert not failed.is_usable
    assert "is unavailable" in failed.errors[0]
    registry.is_down = False
    settings = TaskSettings(tmp_path, WINDOW_MS, {}, SourceOf(codec_of(registry)))
    (done,) = run_task(planned, settings, broker.read)
    assert (done.rows, sum(done.quarantined.values()), done.errors) == (1, 2, [])
    assert list(done.schemas) == [prefix[4]]
    assert tasks._window_key(payload(prefix, 1), WINDOW_MS, 5) in done.counts
