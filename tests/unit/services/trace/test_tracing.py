"""A message's way over a live log, a mirror's records, an offline log and tables: each place where
it can be, and what is said when it is in none."""

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.ranges import boundaries
from kafka2011.coordination import paths, processes
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.forms import FORMS_2011, Form, Forms
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.protocol.compression import Codec
from kafka2011.protocol.errors import InvalidMessage, WrongPartition
from kafka2011.runtime.clock import now_ms
from kafka2011.services.mirror_maker.mirror_registry import LeftOutEntries
from kafka2011.services.mirror_maker.offset_map import OffsetMap, Segment, encode_map
from kafka2011.services.mirror_maker.set_cutting import RefusedEntry
from kafka2011.services.trace import search
from kafka2011.services.trace.search import Logs
from kafka2011.services.trace.steps import Trace
from kafka2011.services.trace.tracing import NotFound, Question, Tracer
from kafka2011.services.warehouse.load.topic_tables import created, table_schema
from kafka2011.services.warehouse.load_commits import Load, LoadedRange
from kafka2011.services.warehouse.upkeep.maintenance import UpkeepPolicy, maintain_table
from tests.support.memory_deployment import Deployment as LiveDeployment
from tests.support.processes import expect_process
from tests.unit.services.warehouse.load.deployment import FIRST, Deployment
from tests.unit.services.warehouse.samples import (
    HEADER_TIME_MS,
    WINDOW_MS,
    access_log_event,
    access_log_payload,
)

LIVE = BrokerPartition(1, 0)
BEFORE = 77  # bytes that stood at the target before the mirror's: its offsets are others


class Way:
    """Both datacenters with one partition of `access-log` each, and a warehouse."""

    def __init__(self, root: Path) -> None:
        self.live = LiveDeployment()
        self.broker = self.live.broker(LIVE.broker_id)
        self.live.topic(ACCESS_LOG, {LIVE.broker_id: 1})
        self.live.admin.put(paths.CLUSTER_ID, b"cluster-one")
        self.offline = Deployment(root)
        self.offline.add_partition(ACCESS_LOG, b"x" * (BEFORE - 10))
        self.copied = 0

    def close(self) -> None:
        self.live.close()
        self.offline.close()

    def send(self, *numbers: int, codec: int = 0) -> None:
        payloads = [access_log_payload(number) for number in numbers]
        self.broker.append(ACCESS_LOG, 0, payloads, codec)

    def mirror(self, *, is_mapped: bool = True) -> None:
        """Copy what is new, as one segment of the map of offsets."""
        data = self.broker.log(ACCESS_LOG)
        self.offline.log += data[self.copied :]
        self.copied = len(data)
        self.commit(self.copied)
        if is_mapped:
            place = paths.mirror_offsets_path("mirror", "cluster-one", ACCESS_LOG, LIVE)
            offsets = OffsetMap([Segment(0, self.copied, BEFORE)])
            self.offline.registry.put(place, encode_map(FIRST.text, offsets))

    def commit(self, offset: int) -> None:
        path = paths.offset_path("mirror", ACCESS_LOG, LIVE)
        self.live.admin.put(path, paths.encode_number(offset))

    def trace(self, question: Question | None = None, **options: Any) -> Trace:
        found: dict[str, Any] = {"time_limit_s": 600.0, **options}
        with contextlib.ExitStack() as stack:
            live, offline = (
                stack.enter_context(contextlib.closing(Logs(name, registry, tuple)))
                for name, registry in (
                    ("live", self.live.admin),
                    ("offline", self.offline.registry),
                )
            )
            forms = found.pop("forms", FORMS_2011)
            tracer = Tracer(live, offline, self.offline.warehouse, forms, **found)
            return tracer.trace(question or by_guid(1))

    def offset_of(self, number: int) -> int:
        at = self.broker.log(ACCESS_LOG).index(access_log_payload(number))
        return at - 10


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    with contextlib.closing(Way(tmp_path)) as found:
        found.send(0, 1, 2)
        yield found


def by_guid(number: int) -> Question:
    return Question(guid=access_log_event(number)["header"]["guid"])


def states(found: Trace) -> list[str]:
    return [str(step.state) for step in found.steps]


def test_it_is_found_in_each_tier_as_it_comes_there(way: Way) -> None:
    way.commit(0)
    found = way.trace()
    offset, size = way.offset_of(1), len(access_log_payload(1)) + 10
    assert states(found) == ["here", "here", "behind", "unknown"]
    assert f"{offset + size} bytes to go" in found.verdict
    assert found.steps[0].places[0]["server"] == "frontend-1"
    way.mirror()
    found = way.trace()
    assert states(found) == ["here", "here", "here", "behind"]
    way.offline.load()
    found = way.trace()
    assert states(found) == ["here"] * 4
    assert (found.has_arrived, found.last_seen) == (True, "warehouse")
    document = json.loads(json.dumps(found.as_json()))
    live, offline, row = (step["places"] for step in document["steps"][1:])
    assert live == [{"partition": "1-0", "offset": offset, "next_offset": offset + size}]
    copy = {"partition": "11-0", "offset": BEFORE + offset, "next_offset": BEFORE + offset + size}
    assert offline == [{**copy, "copied_from": f"1-0 at {offset}"}]
    (place,) = row
    assert (place["table"], place["version"], place["row"]) == ("access_log", 1, 1)
    file = way.offline.warehouse / "access_log" / place["file"]
    assert [str(file)] == way.offline.named_files("access_log")


@pytest.mark.parametrize("is_mapped", [True, False], ids=["by the map", "by reading"])
def test_a_place_and_a_text_lead_to_the_same(way: Way, is_mapped: bool) -> None:
    way.mirror(is_mapped=is_mapped)
    way.offline.load()
    at = way.offset_of(1)
    questions = [
        Question(ACCESS_LOG, source=LIVE, offset=at),
        Question(ACCESS_LOG, source=FIRST, offset=BEFORE + at, tier="offline"),
        Question(text="/page/1?q=1"),
    ]
    for question in questions:
        found = way.trace(question)
        assert found.guid == by_guid(1).guid.hex()
        assert states(found) == ["here"] * 4


def test_copies_are_named_and_a_compressed_set_is_opened(way: Way) -> None:
    way.send(1, codec=Codec.GZIP)
    way.mirror()
    way.mirror(is_mapped=False)
    way.offline.log += way.broker.log(ACCESS_LOG)[: way.offset_of(2)]
    way.offline.load()
    found = way.trace()
    assert [len(step.places) for step in found.steps] == [1, 2, 3, 3]
    assert found.steps[2].text == "mirrored; 3 copies"


def test_each_message_of_a_compressed_set_is_followed_for_itself(way: Way) -> None:
    at = len(way.broker.log(ACCESS_LOG))
    way.send(3, 4, 5, codec=Codec.GZIP)
    way.mirror()
    way.offline.load()
    for is_retired in (False, True):
        if is_retired:
            way.broker.retire(ACCESS_LOG, 0, len(way.broker.log(ACCESS_LOG)))
        for number in range(3):
            found = way.trace(Question(ACCESS_LOG, source=LIVE, offset=at, number=number))
            assert found.guid == by_guid(3 + number).guid.hex()
            assert states(found)[2:] == ["here", "here"]
        with pytest.raises(NotFound, match="has 3 messages only"):
            way.trace(Question(ACCESS_LOG, source=LIVE, offset=at, number=3))


def test_what_could_not_become_a_row_is_in_quarantine_with_its_reason(way: Way) -> None:
    whole = access_log_payload(9)
    way.broker.append(ACCESS_LOG, 0, [whole[:-3]])
    way.mirror()
    way.offline.load()
    found = way.trace(by_guid(9))
    assert states(found) == ["here", "here", "here", "quarantined"]
    assert found.steps[3].places[0]["reason"] == found.steps[3].text
    assert not found.has_arrived


@pytest.mark.parametrize("neighbours", [(), (5,)], ids=["alone", "beside a row"])
def test_what_may_have_been_in_a_quarantine_that_was_dropped_is_not_called_missing(
    way: Way, neighbours: tuple[int, ...]
) -> None:
    way.mirror()
    way.offline.load()
    way.send(*neighbours)
    way.broker.append(ACCESS_LOG, 0, [access_log_payload(9)[:-3]])
    way.mirror()
    way.offline.load()
    assert states(way.trace(by_guid(9)))[3] == "quarantined"
    quarantine = way.offline.warehouse / "quarantine-tables" / "access_log"
    assert maintain_table(quarantine, UpkeepPolicy(retention_hours=1), after_a_day).hours_dropped
    found = way.trace(by_guid(9))
    assert states(found)[3] == "unknown"
    assert "may have been dropped since" in found.verdict


def after_a_day() -> int:
    return now_ms() + 86_400_000


def test_what_a_load_has_passed_without_a_row_is_missing(way: Way) -> None:
    way.mirror()
    end = len(way.offline.log)
    table = created(ACCESS_LOG, way.offline.warehouse / "access_log", table_schema(ACCESS_LOG), "")
    table.commit(Load(ACCESS_LOG, [LoadedRange(FIRST, None, 0, end)], [], {}, WINDOW_MS))
    assert states(way.trace()) == ["here", "here", "here", "missing"]


def test_json_is_followed_by_its_place_and_its_equal_is_no_copy(way: Way) -> None:
    fields = {"at": "2015-05-17T10:05:03Z", "host": "shop-1"}
    payload = json.dumps(fields).encode()
    at = len(way.broker.log(ACCESS_LOG))
    way.broker.append(ACCESS_LOG, 0, [payload, payload])
    way.mirror()
    json_forms = Forms(Form.ID, {ACCESS_LOG: Form.JSON})
    way.offline.load(
        event_forms=json_forms,
        event_time_field={ACCESS_LOG: "at"},
        event_server_field={ACCESS_LOG: "host"},
    )
    forms = json_forms.with_fields({ACCESS_LOG: "at"}, {ACCESS_LOG: "host"})
    found = way.trace(Question(ACCESS_LOG, source=LIVE, offset=at), forms=forms)
    assert states(found) == ["here"] * 4
    assert [len(step.places) for step in found.steps] == [1, 1, 1, 1]
    assert found.steps[0].places[0]["server"] == "shop-1"
    assert found.guid == hashlib.md5(payload, usedforsecurity=False).hexdigest()
    assert states(way.trace(Question(ACCESS_LOG, text="shop-1"), forms=forms))[3] == "here"


def test_an_entry_that_the_mirror_left_out_has_its_reason(way: Way) -> None:
    way.commit(len(way.broker.log(ACCESS_LOG)))
    source = way.live.zookeeper.client()
    source.start()
    LeftOutEntries(source, "mirror").add(
        TopicPartition(ACCESS_LOG, *LIVE), RefusedEntry(way.offset_of(1), 100, "is nested too deep")
    )
    found = way.trace()
    assert states(found) == ["here", "here", "refused", "unknown"]
    assert "is nested too deep" in found.verdict
    source.close()


def test_missing_is_said_only_where_everything_was_read(way: Way) -> None:
    way.commit(len(way.broker.log(ACCESS_LOG)))
    assert states(way.trace())[2] == "missing"
    expect_process(way.offline.registry, "offline", "broker-12", "broker")
    found = way.trace()
    assert states(found)[2] == "unknown"
    assert "broker-12 is away" in found.verdict
    assert states(way.trace(time_limit_s=-1.0, question=place(way)))[2] == "unknown"


def test_who_is_expected_is_read_once_whatever_topics_there_are(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        way.live.topic(name, {LIVE.broker_id: 1})
    calls: list[object] = []
    plain = processes.expected
    monkeypatch.setattr(processes, "expected", lambda *args: calls.append(args) or plain(*args))
    assert way.trace().topic == ACCESS_LOG
    # Of each cluster: once by itself, and once to know who of them is alive.
    assert len(calls) <= 4


def place(way: Way) -> Question:
    return Question(ACCESS_LOG, source=LIVE, offset=way.offset_of(1))


def test_without_an_offset_of_the_mirror_nothing_is_claimed(way: Way) -> None:
    assert states(way.trace())[2] == "unknown"


def test_what_retention_deleted_is_followed_from_its_copy_and_from_its_row(way: Way) -> None:
    way.mirror()
    way.offline.load()
    at, question = way.offset_of(1), place(way)
    way.broker.retire(ACCESS_LOG, 0, way.offset_of(2))
    for asked in (by_guid(1), question):
        found = way.trace(asked)
        assert states(found) == ["here", "deleted", "here", "here"]
        assert found.steps[1].places[0]["offset"] == at
    broker = way.offline.brokers[FIRST.broker_id]
    broker.retire(ACCESS_LOG, FIRST.partition, broker.end(ACCESS_LOG, FIRST.partition))
    found = way.trace()
    assert states(found) == ["unknown", "unknown", "unknown", "here"]
    assert found.last_seen == "warehouse"


def test_a_damaged_table_is_named_and_nothing_is_claimed_of_it(way: Way) -> None:
    way.mirror()
    way.offline.load()
    table = way.offline.warehouse / "access_log"
    commit, (rows,) = max(table.glob("_delta_log/*.json")), table.glob("hour=*/*.parquet")
    for file, said in ((commit, f"{commit} is damaged"), (rows, "Parquet")):
        good = file.read_bytes()
        file.write_bytes(good[: len(good) // 2])
        step = way.trace().steps[3]
        assert step.state == "unknown"
        assert step.text.startswith("the table cannot be read: ")
        assert said in step.text
        file.write_bytes(good)
    assert states(way.trace())[3] == "here"


def test_the_search_of_a_table_ends_in_time(way: Way) -> None:
    """In an object store each commit and each file is a request."""
    way.mirror()
    way.offline.load()
    step = way.trace(place(way), time_limit_s=-1.0).steps[3]
    assert step.state == "unknown"
    assert step.text == "the table was not read, for lack of time"


def test_what_no_log_has_any_more_is_not_called_nowhere_where_a_table_was_not_read(
    way: Way,
) -> None:
    way.mirror()
    way.offline.load()
    for broker, source in ((way.broker, LIVE), (way.offline.brokers[FIRST.broker_id], FIRST)):
        broker.retire(ACCESS_LOG, source.partition, broker.end(ACCESS_LOG, source.partition))
    with pytest.raises(NotFound, match="table access_log was not read to its end, for lack of t"):
        way.trace(time_limit_s=-1.0)
    commit = max((way.offline.warehouse / "access_log").glob("_delta_log/*.json"))
    commit.write_bytes(b"{")
    with pytest.raises(NotFound, match=f"table access_log cannot be read: {commit} is damaged"):
        way.trace()


def test_a_copy_in_front_of_late_events_is_found(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frontend that was cut off sends events of yesterday: times do not rise in the log."""
    monkeypatch.setattr(search, "HALVING_BYTES", 0)
    monkeypatch.setattr(boundaries, "NEAR_BYTES", 1_000)
    yesterday = HEADER_TIME_MS - 86_400_000
    late = [access_log_payload(number, header_time=yesterday) for number in range(100, 160)]
    way.broker.append(ACCESS_LOG, 0, late)
    way.mirror(is_mapped=False)
    assert states(way.trace())[2] == "here"


def test_a_copy_that_retention_may_have_deleted_is_not_called_missing(way: Way) -> None:
    """The first event that is left is older, and came later."""
    payload = access_log_payload(100, header_time=HEADER_TIME_MS - 86_400_000)
    way.broker.append(ACCESS_LOG, 0, [payload])
    way.mirror(is_mapped=False)
    broker = way.offline.brokers[FIRST.broker_id]
    start = way.offline.log.index(payload) - 10
    broker.retire(ACCESS_LOG, FIRST.partition, start)
    found = way.trace()
    assert states(found)[2] == "unknown"
    assert f"retention has deleted what was before offset {start}" in found.verdict
    broker.written_ms[ACCESS_LOG, FIRST.partition] = HEADER_TIME_MS - 120_000
    assert states(way.trace())[2] == "missing"


def test_what_is_nowhere_and_a_bad_place_are_named(way: Way) -> None:
    with pytest.raises(NotFound, match="no such message"):
        way.trace(Question(guid=uuid.UUID(int=1).bytes))
    with pytest.raises(NotFound, match="no such message"):
        way.trace(Question(text=os.fsdecode(b"no UTF-8: \xff")))
    with pytest.raises(NotFound, match="no message at offset 999999 yet"):
        way.trace(Question(ACCESS_LOG, source=LIVE, offset=999_999))


@pytest.mark.parametrize(
    "asked",
    [{"source": LIVE}, {"text": "a"}, {"guid": uuid.UUID(int=1).bytes}, {"source": FIRST}],
)
def test_a_topic_that_is_not_there_is_named(way: Way, asked: dict[str, Any]) -> None:
    tier = {"tier": "offline"} if asked.get("source") == FIRST else {}
    for topic, said in (
        ("access-lg", "no topic 'access-lg'; did you mean access-log?"),
        ("nosuch", "no topic 'nosuch'"),
    ):
        with pytest.raises(NotFound) as raised:
            way.trace(Question(topic, **asked, **tier))
        assert str(raised.value) == said


@pytest.mark.parametrize("asked", [{"source": LIVE}, {"text": "a"}])
def test_a_topic_is_not_called_not_there_while_a_broker_is_away(
    way: Way, asked: dict[str, Any]
) -> None:
    expect_process(way.live.admin, "live", "broker-9", "broker")
    with pytest.raises(NotFound) as raised:
        way.trace(Question("access-lg", **asked))
    assert str(raised.value) == (
        "topic 'access-lg' is not registered; did you mean access-log?; "
        "broker-9 is away: its partitions were not read"
    )
    with pytest.raises(NotFound, match="no such message was found; broker-9 is away"):
        way.trace(Question(ACCESS_LOG, text="nowhere"))


@pytest.mark.parametrize("code", [None, WrongPartition.code])  # an old broker answers as if empty
def test_a_partition_that_is_not_there_is_named(way: Way, code: int | None) -> None:
    if code is not None:
        way.broker.errors[ACCESS_LOG, 7] = code
    with pytest.raises(NotFound) as raised:
        way.trace(Question(ACCESS_LOG, source=BrokerPartition(1, 7)))
    assert str(raised.value) == "live access-log 1-7 is not registered; registered are 1-0"


def test_each_offset_inside_a_message_is_said_to_begin_none(way: Way) -> None:
    """Whatever length stands there: none, a negative one, one beyond the log."""
    start = len(way.broker.log(ACCESS_LOG))
    way.broker.append(ACCESS_LOG, 0, [b"\0\0\0\0\0\xff\xff\xff\xf3\x77\xd0\0\x7f\0\0\0"])
    for inside in range(start + 1, len(way.broker.log(ACCESS_LOG))):
        with pytest.raises(InvalidMessage, match=f"offset {inside}, or it is damaged$"):
            way.trace(Question(ACCESS_LOG, source=LIVE, offset=inside))
