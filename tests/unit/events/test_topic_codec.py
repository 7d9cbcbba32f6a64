"""Events behind registry ids: by the shipped schema, by another version, by what is no event."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events import codec, schemas
from kafka2011.events.codec_source import CodecSource
from kafka2011.events.errors import EventCorrupt, HeaderUnreadable, UnknownSchema
from kafka2011.events.forms import FORMS_2011, FORMS_DEFAULT, parse_forms
from kafka2011.events.peek import peek
from kafka2011.events.registry_client import RegistryUnavailable
from kafka2011.events.topic_codec import RegistryMissing, TopicCodec, id_prefix
from kafka2011.services.schema_registry.views import View
from tests.support.registries import DirectRegistry
from tests.unit.events.samples import page_view, records
from tests.unit.events.test_codec import TOPIC_OF_NAME

EVENT = codec.decode(page_view(1_700_000_000_000))[1]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[DirectRegistry]:
    found = DirectRegistry(tmp_path / "registry")
    yield found
    found.close()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicCodec]:
    found = DirectRegistry(tmp_path_factory.mktemp("registry"))
    yield TopicCodec(FORMS_DEFAULT, found.client())
    found.close()


@pytest.mark.parametrize("name", schemas.names())
@given(data=st.data())
def test_what_was_encoded_is_decoded_in_either_form(
    kept: TopicCodec, name: str, data: st.DataObject
) -> None:
    topic = TOPIC_OF_NAME[name]
    record = data.draw(records(schemas.physical_schema(name)))
    for chosen in (kept, TopicCodec(FORMS_2011)):
        payload = chosen.encoder(topic)(record)
        schema, decoded = chosen.decode(topic, payload)
        assert decoded == record
        assert schema is schemas.schema_named(name)
        assert peek(payload, chosen.forms.prefix_bytes(topic)).guid == record["header"]["guid"]
        assert chosen.is_shipped(topic, payload[: chosen.forms.prefix_bytes(topic)])


def test_the_form_byte_for_byte(registry: DirectRegistry) -> None:
    chosen = TopicCodec(FORMS_DEFAULT, registry.client())
    registry.client().id_of("other", '"int"')
    payload = chosen.encoder("page-view")(EVENT)
    assert payload == b"\0\0\0\0\2" + codec.encode("page-view", EVENT)[17:]
    assert registry.core.query(View.subjects) == ["other", "page-view-value"]


def test_the_form_is_the_topics_and_never_guessed(registry: DirectRegistry) -> None:
    chosen = TopicCodec(parse_forms("login:2011"), registry.client())
    in_2011 = codec.encode("page-view", EVENT)
    with pytest.raises(UnknownSchema):
        chosen.decode("page-view", in_2011)
    assert chosen.decode("login", in_2011)[1] == EVENT
    with pytest.raises((UnknownSchema, HeaderUnreadable)):
        chosen.decode("login", chosen.encoder("page-view")(EVENT))


def evolved(**changes: Any) -> str:
    schema = json.loads(schemas.schema_text("page-view"))
    schema["fields"].append({"name": "language", "type": "string", "default": "en"})
    return json.dumps({**schema, **changes})


def test_another_version_is_decoded_by_its_own_schema(registry: DirectRegistry) -> None:
    chosen = TopicCodec(FORMS_DEFAULT, registry.client())
    prefix = chosen.prefix("page-view")
    newer = id_prefix(registry.client().id_of("page-view-value", evolved()))
    payload = newer + codec.encode("page-view", EVENT)[17:] + b"\x04de"
    schema, record = chosen.decode("page-view", payload)
    assert record == {**EVENT, "language": "de"}
    assert schema["name"] == schemas.schema_named("page-view")["name"]
    assert chosen.is_shipped("page-view", prefix)
    assert not chosen.is_shipped("page-view", newer)


@pytest.mark.parametrize(
    "text",
    [
        '"int"',
        '{"type": "record", "name": "R", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "header", "type": "string"}]}',
        evolved(fields=[{"name": "event_time", "type": "long"}]),
        evolved().replace('"size": 16', '"size": 15'),
        evolved().replace('"name": "server"', '"name": "host_of"'),
    ],
)
def test_a_schema_without_the_header_in_its_place_is_no_events(
    registry: DirectRegistry, text: str
) -> None:
    number = registry.client().id_of("page-view-value", text)
    chosen = TopicCodec(FORMS_DEFAULT, registry.client())
    with pytest.raises(UnknownSchema, match=f"id {number} "):
        chosen.decode("page-view", id_prefix(number) + bytes(60))


def test_hostile_payloads_are_the_senders_fault(registry: DirectRegistry) -> None:
    chosen = TopicCodec(FORMS_DEFAULT, registry.client())
    payload = chosen.encoder("page-view")(EVENT)
    for cut in range(5):
        with pytest.raises(HeaderUnreadable):
            chosen.decode("page-view", payload[:cut])
    for cut in range(5, len(payload)):
        with pytest.raises(EventCorrupt):
            chosen.decode("page-view", payload[:cut])
    with pytest.raises(HeaderUnreadable):
        chosen.decode("page-view", b"\1" + payload[1:])
    with pytest.raises(UnknownSchema, match="id 4294967295"):
        chosen.decode("page-view", b"\0\xff\xff\xff\xff" + payload[5:])


def test_an_absent_registry_is_no_fault_of_the_event(registry: DirectRegistry) -> None:
    payload = TopicCodec(FORMS_DEFAULT, registry.client()).encoder("page-view")(EVENT)
    registry.is_down = True
    with pytest.raises(RegistryUnavailable):
        TopicCodec(FORMS_DEFAULT, registry.client()).decode("page-view", payload)
    with pytest.raises(RegistryMissing, match=r"schema\.registry\.url"):
        TopicCodec(FORMS_DEFAULT).decode("page-view", payload)
    with pytest.raises(RegistryMissing, match="page-view:2011"):
        TopicCodec(FORMS_DEFAULT).prefix("page-view")


def test_a_worker_gets_the_codec_with_what_is_known(registry: DirectRegistry) -> None:
    here = TopicCodec(FORMS_DEFAULT, registry.client())
    payload = here.encoder("page-view")(EVENT)
    source = CodecSource(FORMS_DEFAULT, "http://127.0.0.1:1", 0.1, here.known())
    there = pickle.loads(pickle.dumps(source)).codec()
    assert there is source.codec()
    assert there.decode("page-view", payload)[1] == EVENT
    assert CodecSource().codec().forms == FORMS_2011
