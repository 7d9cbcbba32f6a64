"""Events behind registry ids: by the shipped schema, by another version, and others."""

import contextlib
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
from kafka2011.events.bounds import DEPTH_MAX
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


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
CHILDREN = {"name": "children", "type": {"type": "array", "items": "Tree"}}
TREE = {"type": "record", "name": "Tree", "fields": [CHILDREN]}
BY_NAME = {"name": "by_name", "type": {"type": "map", "values": "Names"}}
NAMES = {"type": "record", "name": "Names", "fields": [BY_NAME]}
ENDLESS = {"type": "record", "name": "Endless", "fields": [{"name": "self", "type": "Endless"}]}
EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "none", "type": "null"}]}


def prefix_of_one(registry: DirectRegistry, kind: Any, *, name: str = "thing") -> bytes:
    """The prefix of events that are a record of one field of this type."""
    schema = {"type": "record", "name": "Thing", "fields": [{"name": name, "type": kind}]}
    return id_prefix(registry.client().id_of("things-value", json.dumps(schema)))


@pytest.mark.parametrize(
    ("kind", "link", "end"),
    [(NODE, b"\2", b"\0"), (TREE, b"\2", b"\0\0"), (NAMES, b"\2\0", b"\0\0")],
    ids=["union", "array", "map"],
)
def test_an_event_too_deep_in_itself_is_corrupt(registry, chosen, kind, link, end) -> None:
    prefix = prefix_of_one(registry, kind)
    for links in (DEPTH_MAX - 1, 1_100, 10_000, 1_000_000):
        for payload in (prefix + link * links + end, prefix + link * links):
            for decode in (chosen.decode, chosen.decode_to_show):
                with pytest.raises(EventCorrupt, match=f"nests more than {DEPTH_MAX} deep"):
                    decode("things", payload)


def test_an_event_as_deep_as_may_be_is_decoded_and_shown(registry, chosen) -> None:
    links = DEPTH_MAX - 2  # besides the event itself and the last one
    payload = prefix_of_one(registry, NODE) + b"\2" * links + b"\0"
    for record in (
        chosen.decode("things", payload)[1],
        chosen.decode_to_show("things", payload)[1],
    ):
        depth, node = 0, record["thing"]
        while node is not None:
            depth, node = depth + 1, node["next"]
        assert depth == links + 1
        assert json.dumps(record, indent=2)


def test_a_type_directly_inside_itself_has_no_event(registry, chosen) -> None:
    with pytest.raises(EventCorrupt, match=f"more than {DEPTH_MAX} deep"):
        chosen.decode("things", prefix_of_one(registry, ENDLESS))


def test_a_reader_refuses_a_chain_in_a_field_that_it_leaves_out(registry, chosen) -> None:
    fields = json.loads(evolved())["fields"]
    fields[-1] = {"name": "thread", "type": NODE, "default": {"next": None}}
    number = registry.client().id_of("page-view-value", evolved(fields=fields))
    read = chosen.reader("page-view")
    assert read(id_prefix(number) + BODY + b"\2\2\0") == EVENT
    with pytest.raises(EventCorrupt, match=f"more than {DEPTH_MAX} deep"):
        read(id_prefix(number) + BODY + b"\2" * 10_000 + b"\0")


@pytest.mark.parametrize("items", ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}])
def test_items_without_bytes_are_no_more_than_the_event_has_bytes(registry, chosen, items) -> None:
    prefix = prefix_of_one(registry, {"type": "array", "items": items})
    assert len(chosen.decode("things", prefix + long(6) + b"\0")[1]["thing"]) == 6
    blocks = long(2) + long(-2) + long(0) + long(1) + b"\0"
    assert len(chosen.decode("things", prefix + blocks)[1]["thing"]) == 5
    for count in (9, 2**23, 2**62, -(2**63)):
        with pytest.raises(EventCorrupt, match=r"items without bytes|longer than 64 bits"):
            chosen.decode("things", prefix + long(count) + b"\0\0")
    with pytest.raises(EventCorrupt, match="items without bytes"):
        chosen.decode("things", prefix + long(7) * 20 + b"\0")


def test_a_schema_of_which_one_event_has_very_many_values_is_not_read(registry, chosen) -> None:
    kind: Any = "int"
    for number in range(30):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"R{number - 1}"}]
        kind = {"type": "record", "name": f"R{number}", "fields": fields[: 2 if number else 1]}
    with pytest.raises(UnknownSchema, match="more than 100,000 values"):
        chosen.decode("things", prefix_of_one(registry, kind) + bytes(100))


ANYTHING: list[Any] = [
    {"name": "tree", "type": ["null", TREE]},
    {"name": "names", "type": NAMES},
    {"name": "node", "type": NODE},
    {"name": "again", "type": ["null", "string", "Node", {"type": "array", "items": "bytes"}]},
    {"name": "nothing", "type": {"type": "array", "items": "null"}},
    {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}},
    {"name": "place", "type": {"type": "fixed", "name": "Place", "size": 3}},
    {"name": "plain", "type": {"type": "map", "values": ["int", "double", "boolean", "float"]}},
    {"name": "count", "type": "long"},
]
TREES = st.recursive(
    st.just({"children": []}), lambda inner: st.builds(lambda c: {"children": c}, st.lists(inner))
)
NODES = st.integers(0, 20).map(lambda n: {"next": NODES_BY_LENGTH[n]})
NODES_BY_LENGTH: list[Any] = [None]
for _ in range(20):
    NODES_BY_LENGTH.append({"next": NODES_BY_LENGTH[-1]})
THINGS = st.fixed_dictionaries(
    {
        "tree": st.none() | TREES,
        "names": st.recursive(
            st.just({"by_name": {}}),
            lambda inner: st.builds(
                lambda found: {"by_name": found}, st.dictionaries(st.text(max_size=3), inner)
            ),
        ),
        "node": NODES,
        "again": st.none() | st.text(max_size=80) | NODES | st.lists(st.binary(max_size=80)),
        "nothing": st.lists(st.none(), max_size=5),
        "colour": st.sampled_from(["red", "blue"]),
        "place": st.binary(min_size=3, max_size=3),
        "plain": st.dictionaries(
            st.text(max_size=3),
            st.integers(-(2**31), 2**31 - 1) | st.booleans() | st.floats(allow_nan=False),
        ),
        "count": st.integers(-(2**63), 2**63 - 1),
    }
)


@given(record=THINGS)
def test_every_event_that_nests_a_little_is_decoded(kept, record) -> None:
    schema = {"type": "record", "name": "Anything", "fields": ANYTHING}
    number = kept._registry.id_of("anything-value", json.dumps(schema))
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), record)
    found = kept.decode("anything", id_prefix(number) + body.getvalue())[1]
    assert found == fastavro.schemaless_reader(
        BytesIO(body.getvalue()), fastavro.parse_schema(schema), None
    )


@given(body=st.binary(max_size=300) | st.lists(st.sampled_from([0, 1, 2, 3, 128])).map(bytes))
def test_hostile_bodies_of_types_inside_themselves_raise_event_errors_only(kept, body) -> None:
    schema = {"type": "record", "name": "Anything", "fields": ANYTHING}
    number = kept._registry.id_of("anything-value", json.dumps(schema))
    with contextlib.suppress(EventError):
        kept.decode("anything", id_prefix(number) + body)


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
