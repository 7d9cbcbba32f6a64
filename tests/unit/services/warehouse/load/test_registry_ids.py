"""Events that carry registry ids as rows: both decoders, other versions, an absent registry."""

import copy
import io
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest

from kafka2011.events import codec_source, schemas
from kafka2011.events.forms import FORMS_DEFAULT
from kafka2011.events.header import UNREADABLE
from kafka2011.events.registry_client import RegistryUnavailable
from kafka2011.events.topic_codec import TopicCodec, id_prefix
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.runtime.failpoints import FailpointError
from kafka2011.services.warehouse.load.columns import EventColumns
from kafka2011.services.warehouse.load.job import LoadOutcome
from tests.support.registries import URL, DirectRegistry
from tests.unit.services.warehouse import samples
from tests.unit.services.warehouse.load.deployment import Deployment, patch_failpoints
from tests.unit.services.warehouse.samples import SHIPPED_SCHEMA, access_log_payload, payload_with


@pytest.fixture
def codec(registry: DirectRegistry) -> TopicCodec:
    return TopicCodec(FORMS_DEFAULT, registry.client())


def test_rows_are_those_of_the_2011_form(registry: DirectRegistry, codec: TopicCodec) -> None:
    prefix = codec.prefix(ACCESS_LOG)
    payloads = [payload_with(prefix, number) for number in range(50)]
    columns = EventColumns(ACCESS_LOG, codec)
    wanted = EventColumns(ACCESS_LOG).decode([access_log_payload(n) for n in range(50)])
    assert columns.decode(payloads) == wanted
    assert columns.decode_in_python(payloads) == wanted
    assert registry.questions.count(f"GET /schemas/ids/{prefix[4]}") == 0  # it registered it itself


@pytest.mark.parametrize(
    ("schema", "addition"),
    [(samples.NEWER_SCHEMA, b"\x04de"), ({**SHIPPED_SCHEMA, "doc": "other words"}, b"")],
    ids=["a column more", "other words"],
)
def test_events_of_another_version_are_rows_among_the_others(
    registry: DirectRegistry, codec: TopicCodec, schema: Any, addition: bytes
) -> None:
    old, new = codec.prefix(ACCESS_LOG), samples.prefix_of(registry, schema)
    assert old != new

    def statuses(columns: EventColumns, payloads: Sequence[bytes]) -> Any:
        return columns.decode(payloads).batch.column("status").to_pylist()

    payloads = [payload_with(old, 1), payload_with(new, 9) + addition, payload_with(old, 2)]
    assert statuses(EventColumns(ACCESS_LOG, codec), payloads) == [200, 404, 200]
    columns = EventColumns(ACCESS_LOG, codec)
    assert statuses(columns, payloads[1:]) == [404, 200]
    for payload, status in zip(payloads, [200, 404, 200], strict=True):
        assert statuses(columns, [payload] * 3) == [status] * 3


def test_values_that_fit_no_column_are_named_and_not_the_others(
    registry: DirectRegistry, codec: TopicCodec
) -> None:
    schema = copy.deepcopy(SHIPPED_SCHEMA)
    (status,) = [part for part in schema["fields"] if part["name"] == "status"]
    status["type"] = "string"
    good, odd = codec.prefix(ACCESS_LOG), samples.prefix_of(registry, schema, "somewhere")
    body = io.BytesIO()
    physical = fastavro.parse_schema(schemas.without_logical_types(schema))
    fastavro.schemaless_writer(body, physical, samples.access_log_event(1, status="two hundred"))
    payloads = [payload_with(good, 1), odd + body.getvalue(), payload_with(good, 2)]
    found = EventColumns(ACCESS_LOG, codec).decode(payloads)
    assert found.batch.num_rows == 2
    assert [reject.message_index for reject in found.rejected] == [1]


def test_while_the_registry_is_away_no_message_of_an_unknown_schema_is_judged(
    registry: DirectRegistry, codec: TopicCodec, deployment: Deployment
) -> None:
    prefix = codec.prefix(ACCESS_LOG)
    event = payload_with(prefix, 1)
    junk = prefix + b"no event", event[:-1], b"\0\0\0\3\3junk"
    deployment.append(range(0), event, *junk)
    registry.is_down = True
    columns = EventColumns(ACCESS_LOG, TopicCodec(FORMS_DEFAULT, registry.client()))
    for decode in (columns.decode, columns.decode_in_python):
        with pytest.raises(RegistryUnavailable):
            decode([event])

    def load() -> LoadOutcome:
        """One load with new worker processes."""
        codec_source._codec.cache_clear()
        return deployment.load(event_forms=FORMS_DEFAULT, schema_registry_url=URL)

    outcome = load()
    assert outcome.versions == {}
    assert "is unavailable" in outcome.failures[0]

    registry.is_down = False
    outcome = load()
    assert (outcome.rows, outcome.failures) == ({ACCESS_LOG: 1}, [])
    (info,) = deployment.commits()
    window = samples.HEADER_TIME_MS - samples.HEADER_TIME_MS % samples.WINDOW_MS, "frontend-1"
    assert info.counts == {window: 1}
    assert info.quarantined == {window: 1, UNREADABLE: 2}

    # The warehouse keeps the schema for the next process.
    registry.is_down = True
    deployment.append(range(0), event)
    assert load().rows == {ACCESS_LOG: 1}


def test_what_another_loader_left_in_quarantine_when_it_died_is_no_row_too(
    registry: DirectRegistry,
    codec: TopicCodec,
    deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its schema is registered before the loader that runs on sees the message."""
    given = {"event_forms": FORMS_DEFAULT, "schema_registry_url": URL}
    prefix = codec.prefix(ACCESS_LOG)
    deployment.append(range(0), payload_with(prefix, 1))
    running = deployment.loader(**given)
    assert running.load().rows == {ACCESS_LOG: 1}
    event = payload_with(id_prefix(prefix[4] + 1), 2) + b"\x04de"
    deployment.append(range(0), event)

    def die(reached: str) -> None:
        if reached == "after_quarantine":
            raise FailpointError(reached)

    with monkeypatch.context() as dying, pytest.raises(FailpointError):
        patch_failpoints(dying, die)
        deployment.load(**given)
    assert deployment.quarantined() == [event]
    assert samples.prefix_of(registry, samples.NEWER_SCHEMA) == event[: len(prefix)]
    codec_source._codec.cache_clear()
    outcome = running.load()
    assert (outcome.rows, outcome.quarantined) == ({ACCESS_LOG: 0}, {ACCESS_LOG: 1})
    assert len(deployment.rows()) == 1
    assert deployment.quarantined() == [event]
