"""Events behind registry ids: by the shipped schema, by another version, and others."""

import json
import pickle
from collections.abc import Iterator
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events import codec, schemas, topics
from kafka2011.events.codec_source import CodecSource
from kafka2011.events.errors import EventCorrupt, EventError, HeaderUnreadable, UnknownSchema
from kafka2011.events.forms import FORMS_2011, FORMS_DEFAULT, parse_forms
from kafka2011.events.peek import peek
from kafka2011.events.primitives import long
from kafka2011.events.registry_client import RegistryUnavailable
from kafka2011.events.topic_codec import RegistryMissing, TopicCodec, id_prefix
from kafka2011.services.schema_registry.views import View
from tests.support.registries import DirectRegistry
from tests.unit.events.samples import page_view, records

EVENT = codec.decode(page_view(1_700_000_000_000))[1]
BODY = codec.encode("page-view", EVENT)[17:]
LOGIN = {"member_id": 1, "host": "10.0.0.1", "succeeded": True} | {
    name: EVENT[name] for name in ("header", "event_time")
}
TOPICS = {"unreadable-line": "access-log-unreadable", "monitoring-event": topics.AUDIT}


@pytest.fixture
def chosen(registry: DirectRegistry) -> TopicCodec:
    return TopicCodec(FORMS_DEFAULT, registry.client())


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicCodec]:
    found = DirectRegistry(tmp_path_factory.mktemp("registry"))
    yield TopicCodec(FORMS_DEFAULT, found.client())
    found.close()


@pytest.mark.parametrize("name", schemas.names())
@given(data=st.data())
def test_what_was_encoded_is_decoded_in_either_form(kept, name, data) -> None:
    topic = TOPICS.get(name, name)
    record = data.draw(records(schemas.physical_schema(name)))
    for one in (kept, TopicCodec(FORMS_2011)):
        payload = one.encoder(topic)(record)
        schema, decoded = one.decode(topic, payload)
        assert decoded == record
        assert schema is schemas.schema_named(name)
        prefix_bytes = one.forms.prefix_bytes(topic)
        assert peek(payload, prefix_bytes).guid == record["header"]["guid"]
        assert one.writer_schema(topic, payload).has_header


def test_the_form_byte_for_byte(registry, chosen) -> None:
    registry.client().id_of("other", '"int"')
    assert chosen.encoder("page-view")(EVENT) == b"\0\0\0\0\2" + BODY
    assert registry.core.query(View.subjects) == ["other", "page-view-value"]


def test_the_form_is_the_topics_and_never_guessed(registry) -> None:
    mixed = TopicCodec(parse_forms("login:2011"), registry.client())
    in_2011 = codec.encode("page-view", EVENT)
    with pytest.raises(UnknownSchema):
        mixed.decode("page-view", in_2011)
    assert mixed.decode("login", in_2011)[1] == EVENT
    with pytest.raises((UnknownSchema, HeaderUnreadable)):
        mixed.decode("login", mixed.encoder("page-view")(EVENT))


def evolved(**changes: Any) -> str:
    schema = json.loads(schemas.schema_text("page-view"))
    schema["fields"].append({"name": "language", "type": "string", "default": "en"})
    return json.dumps({**schema, **changes})


def test_another_version_is_decoded_by_its_own_schema(registry, chosen) -> None:
    prefix = chosen.prefix("page-view")
    newer = id_prefix(registry.client().id_of("page-view-value", evolved()))
    schema, record = chosen.decode("page-view", newer + BODY + b"\x04de")
    assert record == {**EVENT, "language": "de"}
    assert schema["name"] == schemas.schema_named("page-view")["name"]
    read = chosen.reader("page-view")
    for _ in range(2):  # another schema than the one before
        assert read(newer + BODY + b"\x04de") == EVENT
        assert read(prefix + BODY) == EVENT
    assert chosen.writer_schema("page-view", prefix).schema is schemas.schema_named("page-view")
    assert chosen.prefixes("page-view") == [prefix, newer]
    assert chosen.is_of_topic("page-view", newer)
    assert not chosen.is_of_topic("click", newer)


def test_a_reader_gives_the_shipped_fields_or_says_that_they_are_not_there(
    registry, chosen
) -> None:
    fields = json.loads(evolved())["fields"]
    without = {
        name: evolved(fields=[each for each in fields if each["name"] != name])
        for name in ("referer", "member_id")
    }
    read = chosen.reader("page-view")
    for name, text in without.items():
        number = registry.client().id_of("page-view-value", text)
        parsed = chosen.writer_schema("page-view", id_prefix(number)).physical
        body = BytesIO()
        fastavro.schemaless_writer(body, parsed, {**EVENT, "language": "de"})
        payload = id_prefix(number) + body.getvalue()
        if name == "referer":  # its default
            assert read(payload) == {**EVENT, "referer": None}
            continue
        with pytest.raises(
            EventCorrupt, match=r"does not have the fields of a kafka2011[.]PageView"
        ):
            read(payload)
    other = id_prefix(registry.client().id_of("login-value", schemas.schema_text("login")))
    login = codec.encode("login", LOGIN)[17:]
    with pytest.raises(EventCorrupt, match=r"the event, a kafka2011[.]Login, does not have"):
        read(other + login)
    with pytest.raises(UnknownSchema, match="in the form json, which has no schema"):
        TopicCodec(parse_forms("page-view:json")).reader("page-view")
    with pytest.raises(UnknownSchema, match="no schema is shipped for 'orders'"):
        chosen.reader("orders")


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "record", "name": "R", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "header", "type": "string"}]}',
        evolved(fields=[{"name": "event_time", "type": "long"}]),
        evolved().replace('"size": 16', '"size": 15'),
        evolved().replace('"name": "server"', '"name": "host_of"'),
    ],
)
def test_only_a_header_in_its_place_is_one(registry, chosen, text) -> None:
    number = registry.client().id_of("page-view-value", text)
    assert not chosen.writer_schema("page-view", id_prefix(number)).has_header


def test_only_a_record_is_an_event(registry, chosen) -> None:
    number = registry.client().id_of("page-view-value", '"int"')
    with pytest.raises(UnknownSchema, match=f"id {number} cannot be read: .*not a record"):
        chosen.decode("page-view", id_prefix(number) + b"\2")


PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
WEIGHT = PRICE | {"type": "fixed", "name": "Weight", "size": 4, "scale": 3, "precision": 9}
PRICED = {
    "type": "record",
    "name": "Parcel",
    "fields": [
        {"name": "price", "type": ["null", PRICE]},
        {"name": "weight", "type": WEIGHT},
        {
            "name": "parts",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Part",
                    "fields": [{"name": "price", "type": PRICE}],
                },
            },
        },
        {"name": "first", "type": ["null", "Part"]},
        {"name": "by_name", "type": {"type": "map", "values": "Part"}},
        {"name": "note", "type": "bytes"},
        {"name": "huge", "type": {**PRICE, "precision": 100}},
    ],
}


def test_decimals_are_shown_as_the_tables_have_them(registry, chosen) -> None:
    def units(number: int) -> bytes:
        return number.to_bytes(4, "big", signed=True)

    part = {"price": units(-5)}
    event = {"price": units(50), "weight": units(1250), "parts": [part], "first": part}
    event |= {"by_name": {"a": part}, "note": b"2", "huge": b"\x7f" * 40}
    out = BytesIO()
    fastavro.schemaless_writer(out, schemas.without_logical_types(PRICED), event)
    number = registry.client().id_of("parcels-value", json.dumps(PRICED))
    payload = id_prefix(number) + out.getvalue()
    assert chosen.decode("parcels", payload)[1] == event
    shown = chosen.decode_to_show("parcels", payload)[1]
    part = {"price": Decimal("-0.05")}
    assert shown == event | {
        "price": Decimal("0.50"),
        "weight": Decimal("1.250"),
        "parts": [part],
        "first": part,
        "by_name": {"a": part},
    }
    event["price"] = None
    out = BytesIO()
    fastavro.schemaless_writer(out, schemas.without_logical_types(PRICED), event)
    assert chosen.decode_to_show("parcels", id_prefix(number) + out.getvalue())[1]["price"] is None


def test_hostile_payloads_are_the_senders_fault(chosen) -> None:
    payload = chosen.encoder("page-view")(EVENT)
    hostile: list[tuple[bytes, type[EventError]]] = [
        *[(payload[:cut], HeaderUnreadable) for cut in range(5)],
        *[(payload[:cut], EventCorrupt) for cut in range(5, len(payload))],
        (b"\1" + payload[1:], HeaderUnreadable),
        (b"\0\xff\xff\xff\xff" + payload[5:], UnknownSchema),
    ]
    for cut_or_changed, error in hostile:
        with pytest.raises(error):
            chosen.decode("page-view", cut_or_changed)
        read = chosen.reader("page-view")
        with pytest.raises(error):
            read(cut_or_changed)
        assert read(payload) == EVENT
        with pytest.raises(error):
            read(cut_or_changed)


def test_an_absent_registry_is_no_fault_of_the_event(registry, chosen) -> None:
    payload = chosen.encoder("page-view")(EVENT)
    registry.is_down = True
    with pytest.raises(RegistryUnavailable):
        TopicCodec(FORMS_DEFAULT, registry.client()).decode("page-view", payload)
    with pytest.raises(RegistryMissing, match=r"schema\.registry\.url"):
        TopicCodec(FORMS_DEFAULT).decode("page-view", payload)
    with pytest.raises(RegistryMissing, match="page-view:2011"):
        TopicCodec(FORMS_DEFAULT).prefix("page-view")


def test_a_worker_gets_the_codec_with_what_is_known(chosen) -> None:
    payload = chosen.encoder("page-view")(EVENT)
    source = CodecSource(FORMS_DEFAULT, "http://127.0.0.1:1", 0.1, chosen.known())
    there = pickle.loads(pickle.dumps(source)).codec()
    assert there is source.codec()
    assert there.decode("page-view", payload)[1] == EVENT
    assert CodecSource().codec().forms == FORMS_2011


def test_longs_byte_for_byte() -> None:
    encoded = [long(number).hex() for number in (0, -1, 1, 63, 64, -65, 300)]
    assert encoded == ["00", "01", "02", "7e", "8001", "8101", "d804"]
