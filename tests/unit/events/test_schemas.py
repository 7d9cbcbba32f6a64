import hashlib
import json
from io import BytesIO

import fastavro
import fastavro.utils
import pytest

from kafka2011.events import schemas, topics
from kafka2011.events.errors import UnknownSchema
from kafka2011.events.monitoring import HEARTBEAT_BEFORE
from kafka2011.services.warehouse.load.columns import EventColumns

ALL_TOPICS = [
    *topics.ACTIVITY_TOPICS,
    topics.ACCESS_LOG,
    topics.AUDIT,
    topics.unreadable_topic(topics.ACCESS_LOG),
    *topics.MEASURED_TOPICS,
    *topics.RESULT_TOPICS,
]
BEFORE = ("click-before-search", "impression-before-search", "service-metric-before-process")
# Messages in a log are read for as long as the log is kept: a change here orphans them.
SHIPPED = {
    "access-log": "d1ce5060ff092619ecf14d9364f2b94a",
    "click": "db9ef295e551318c8a6e06fdf878e320",
    "click-before-search": "a0af13012c1acf249c3843ccab41f390",
    "comment": "d389df786e8823671310f735292ddb8c",
    "connection": "edf2ce874f5cc62ebb5329936111d21e",
    "heartbeat": "cbb85d995523ab8a64b1d7238e078228",
    "impression": "0a96fdeaadac6c6b2da59b8560d7afc9",
    "impression-before-search": "1cd779248c3bcb5bb48709f2743ab10f",
    "like": "2aef492e54b0bc6e173780320fec3ab6",
    "log-line": "af33a84a80a3dd2d6c43fb237fbde701",
    "login": "70f0e74223b87bb80eaeeb8e5ed03572",
    "monitoring-event": "a7cd2c0ad172c22650ef5595e0c1c2e5",
    "page-view": "ac2c4ffae829b3789410797661cd8161",
    "profile-update": "12d88eecfac7846cae5b333ae2aa1cee",
    "search": "802a60a03734f2609dce44647988c4b9",
    "service-call": "80fabdf491f761e0525ad45902b99e2d",
    "service-metric": "7faf822e61878688ea5a3e1f4e4f6edf",
    "service-metric-before-process": "5c042a6f62564887efeccc6cfa91fdc2",
    "share": "8c68a917c17aedbabd3a7e35e9a43fe2",
    "status-update": "bc399189da4294de580ae32136381c30",
    "unreadable-line": "dcecfc4d98d0cc8540e69e79e113e56f",
}


def test_shipped_fingerprints_stay() -> None:
    found = {name: schemas.fingerprint_of_name(name).hex() for name in schemas.names()}
    assert len(set(found.values())) == len(found)
    assert found.items() >= SHIPPED.items()


@pytest.mark.parametrize("topic", ALL_TOPICS)
def test_every_topic_has_a_schema_that_its_fingerprint_leads_back_to(topic) -> None:
    schema = schemas.schema_named(topics.schema_name(topic))
    md5 = schemas.fingerprint(schema)
    assert len(md5) == 16
    assert schemas.schema_named(schemas.name_by_fingerprint(md5)) is schema


def test_every_schema_belongs_to_a_topic() -> None:
    named = {topics.schema_name(topic) for topic in ALL_TOPICS}
    named |= {topics.HEARTBEAT, HEARTBEAT_BEFORE, topics.LOG_LINE, *BEFORE}
    assert named == set(schemas.names())


@pytest.mark.parametrize("before", BEFORE)
def test_an_event_of_before_is_a_row_of_its_topic(before) -> None:
    """In the 2011 form each version is shipped for as long as logs may have it."""
    topic = before.split("-before-")[0]
    old, new = schemas.schema_named(before), schemas.schema_named(topics.schema_name(topic))
    assert (old["name"], old["fields"]) == (new["name"], new["fields"][: len(old["fields"])])
    assert all("default" in field for field in new["fields"][len(old["fields"]) :])
    record = fastavro.utils.generate_one(schemas.physical_schema(before))
    record["header"]["time"] = record["event_time"] = 1
    payload = BytesIO()
    fastavro.schemaless_writer(payload, schemas.physical_schema(before), record)
    prefix = b"\0" + schemas.fingerprint_of_name(before)
    decoded = EventColumns(topic).decode([prefix + payload.getvalue()])
    assert decoded.rejected == []
    [row] = decoded.batch.to_pylist()
    own = [field["name"] for field in old["fields"][2:]]
    assert [row[name] for name in own] == [record[name] for name in own]


def test_header_is_the_same_first_field_everywhere() -> None:
    firsts = [json.loads(schemas.schema_text(name))["fields"][0] for name in schemas.names()]
    assert all(first == firsts[0] for first in firsts)
    assert [f["name"] for f in firsts[0]["type"]["fields"]] == ["guid", "time", "server", "service"]


def test_fingerprint_is_of_the_canonical_form_so_doc_and_logical_types_do_not_change_it() -> None:
    assert schemas.fingerprint(schemas.physical_schema("page-view")) == (
        schemas.fingerprint_of_name("page-view")
    )
    plain = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    adorned = {**plain, "doc": "x", "fields": [{"name": "a", "type": {"type": "int"}, "doc": "y"}]}
    canonical = '{"name":"R","type":"record","fields":[{"name":"a","type":"int"}]}'
    expected = hashlib.md5(canonical.encode()).digest()
    assert schemas.fingerprint(plain) == schemas.fingerprint(adorned) == expected


def test_unknown_names_and_fingerprints_are_refused() -> None:
    with pytest.raises(UnknownSchema):
        schemas.schema_named(topics.schema_name("no-such-topic"))
    with pytest.raises(UnknownSchema):
        schemas.name_by_fingerprint(bytes(16))


COLUMNS = {
    "access-log": "header event_time host ident user time method path protocol status bytes "
    "referer agent",
    "access-log-unreadable": "header line length sha256 line_number",
    "page-view": "header event_time member_id path referer status bytes host agent",
}


@pytest.mark.parametrize(("topic", "columns"), COLUMNS.items())
def test_columns(topic, columns) -> None:
    schema = schemas.schema_named(topics.schema_name(topic))
    assert [field["name"] for field in schema["fields"]] == columns.split()


def test_table_names() -> None:
    assert topics.table_name("access-log-unreadable") == "access_log_unreadable"
    assert topics.table_name(topics.SERVICE_METRIC) == "service_metric"
