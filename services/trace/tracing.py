"""Follows one message from the live logs over the mirror into the offline logs and the warehouse.

It is found by its place, its guid or a text in it; then each tier is searched for it. The mirror's
map of offsets says where its copy must stand, and the message that stands there is compared; copies
beyond that are found by reading the topic's partitions from about its time on. Rows are found by
the place of the offline copy. `steps` draws the conclusions.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka2011.consumer.chunk import TopicPartition
from kafka2011.coordination import paths
from kafka2011.coordination.errors import BadZnode
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.errors import EventError
from kafka2011.events.forms import Forms
from kafka2011.events.header import Header
from kafka2011.events.origin import origin_of
from kafka2011.events.topics import AUDIT
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.os_errors import first_line
from kafka2011.runtime.shared_settings import MIRROR_GROUP
from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.mirror_maker.mirror_registry import TracedCopy, read_left_out, traced_copies
from kafka2011.services.trace.search import (
    EntryLocation,
    Hit,
    Logs,
    Searched,
    Sought,
    without_topic,
)
from kafka2011.services.trace.steps import (
    LIVE,
    OFFLINE,
    PRODUCED,
    WAREHOUSE,
    Loaded,
    Mirrored,
    State,
    Step,
    Trace,
    copies,
    place_json,
    without_copy,
    without_row,
)

if TYPE_CHECKING:
    from kafka2011.services.trace.table_rows import Row, Tables

SLACK_MS = 60_000  # by which messages may be out of the order of their times
OTHERS_MAX = 10
NEEDS_TABLES = "tables need pip install 'kafka2011[sql]'"


class NotFound(Exception):
    """No such message was found; the text says where it was looked for."""


@dataclass(frozen=True, slots=True)
class Question:
    """A message: by `guid`, by `text` in it, or by `source` and `offset` in the tier `tier`.

    `topic` is needed for a place, and bounds the search otherwise ("": every topic but `audit`).
    `number`: which message of the entry at the place, if that is a compressed set.
    """

    topic: str = ""
    guid: bytes = b""
    text: str = ""
    source: BrokerPartition | None = None
    offset: int = 0
    tier: str = LIVE
    number: int = 0


class Tracer:
    """Answers questions about one deployment; parts of it that are None are not looked at.

    `trace` raises NotFound, KafkaError (a broker that a place needs is away, no message is there)
    and CoordinationError.
    """

    def __init__(
        self,
        live: Logs | None,
        offline: Logs | None,
        warehouse_dir: StoragePath | None,
        forms: Forms,
        *,
        mirror_group: str = MIRROR_GROUP,
        time_limit_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logs = {LIVE: live, OFFLINE: offline}
        self._warehouse_dir = warehouse_dir
        self._forms = forms
        self._group = mirror_group
        self._monotonic, self._time_limit_s = monotonic, time_limit_s
        self._deadline = monotonic() + time_limit_s

    def trace(self, question: Question) -> Trace:
        located = self._locate(question)
        topic, payload = located.topic, located.payload
        header = self._header(topic, payload)
        guid = header.guid if header else question.guid
        if not guid and payload is not None and not self._forms.of(topic).is_avro:
            guid = origin_of(self._forms, topic).guid(payload)  # the guid of its row
        answer = Trace(topic, guid.hex(), len(payload) if payload is not None else None)
        answer.others = located.others
        one = _Message(topic, payload, guid, header)
        # A live place leads to its copy, and a copy to where it came from.
        live = self._in_logs(LIVE, one, located.live, located.searched.get(LIVE))
        mapped = self._copies_of(topic, live.places)
        searched = located.searched.get(OFFLINE)
        offline = self._in_logs(OFFLINE, one, [*located.offline, *mapped], searched)
        if not live.places:
            live.add_deleted(self._origins_of(topic, offline.places), self._logs[LIVE], topic)
        answer.steps = [
            _produced(header),
            _live_step(live),
            self._offline_step(one, live, offline),
            self._warehouse_step(one, offline, located.rows),
        ]
        return answer

    # --- finding the message -----------------------------------------------------------------

    def _locate(self, question: Question) -> "_Located":
        if question.source is not None:
            return self._by_place(question, question.source)
        looked: list[str] = []
        for tier, logs in self._logs.items():
            if logs is None:
                continue
            every = [topic for topic in logs.topics() if topic != AUDIT]
            topics = [question.topic] if question.topic else every
            sought = [self._sought(topic, question) for topic in topics]
            topic, found = logs.find(sought, since=None, deadline=self._deadline)
            looked += found.gaps
            if found.hits:
                located = _located(topic, tier, found.hits)
                # A search by guid finds all its places: no other is needed in this tier.
                located.searched = {tier: found} if question.guid else {}
                return located
        if question.guid and self._warehouse_dir is not None:
            topic, rows, gaps = self._find_rows(self._warehouse_dir, question)
            if rows:
                return _Located(topic, None, rows=rows)
            looked += gaps
        clusters = [logs for logs in self._logs.values() if logs is not None]
        if question.topic and (text := without_topic(question.topic, clusters)):
            raise NotFound(text)
        raise NotFound("; ".join(["no such message was found", *dict.fromkeys(looked)]))

    def _find_rows(
        self, warehouse_dir: StoragePath, question: Question
    ) -> "tuple[str, list[Row], list[str]]":
        """(topic, rows, gaps) of the question's guid in the tables."""
        try:
            from kafka2011.services.trace.table_rows import find_guid
        except ImportError:
            return "", [], [NEEDS_TABLES]
        topics = [question.topic] if question.topic else []
        return find_guid(warehouse_dir, question.guid, topics, self._deadline)

    def _by_place(self, question: Question, source: BrokerPartition) -> "_Located":
        logs = self._logs[question.tier]
        if logs is None:
            raise NotFound(f"the {question.tier} datacenter was not given")
        topic, where = question.topic, f"{question.tier} {question.topic} {source.text}"
        ends = logs.ends(topic, source)
        if ends is not None and question.offset < ends[0]:
            # Retention has deleted it: the mirror's map says where its copy stands.
            place = EntryLocation(source, question.offset, question.offset)
            offline = self._logs[OFFLINE]
            copied = self._copies_of(topic, [place]) if question.tier == LIVE else []
            for copy in copied if offline is not None else []:
                hits = offline.at(topic, copy.source, copy.offset) if offline else []
                if hits:
                    return _located(topic, OFFLINE, _asked_first(hits, question.number)[:1])
            raise NotFound(f"{where} begins at {ends[0]}: retention has deleted {question.offset}")
        is_behind_end = ends is not None and question.offset >= ends[1]
        hits = [] if is_behind_end else logs.at(topic, source, question.offset)
        if not hits:
            if text := without_topic(topic, [logs]):
                raise NotFound(text)
            if source.text not in (known := logs.partitions(topic)):
                there = (
                    f"registered are {', '.join(known)}" if known else "no broker has registered it"
                )
                raise NotFound(f"{where} is not registered; {there}")
            raise NotFound(f"{where} has no message at offset {question.offset} yet")
        return _located(topic, question.tier, _asked_first(hits, question.number))

    def _sought(self, topic: str, question: Question) -> Sought:
        if question.guid:
            return self._with_guid(topic, question.guid)
        wanted = os.fsencode(question.text)  # an argument's bytes, UTF-8 or not
        return Sought(topic, lambda payload: wanted in payload, wanted)

    def _with_guid(self, topic: str, guid: bytes) -> Sought:
        origin = origin_of(self._forms, topic)
        is_inside = origin.has_guids
        return Sought(
            topic, lambda payload: origin.guid(payload) == guid, guid if is_inside else b""
        )

    def _header(self, topic: str, payload: bytes | None) -> Header | None:
        try:
            return origin_of(self._forms, topic).header(payload or b"")
        except EventError:
            return None

    # --- the logs ----------------------------------------------------------------------------

    def _in_logs(
        self, tier: str, one: "_Message", known: list[EntryLocation], searched: Searched | None
    ) -> "_Found":
        """The places of the message in a cluster: the known ones where it stands, and those that a
        search finds (`searched`: the result of one made already). That needs a guid: equal messages
        without one are no copies."""
        logs = self._logs[tier]
        found = _Found()
        if logs is None:
            found.gaps.append(f"the {tier} datacenter was not given")
            return found
        for place in known:
            self._look_at(logs, one, place, found)
        origin = origin_of(self._forms, one.topic)
        if one.header is None or not origin.has_guids:
            if not found.places:
                found.gaps.append("it has no guid of its own, so it can only be found by its place")
            return found
        if searched is None:
            since = max(0, one.header.time_ms - SLACK_MS), origin.time_ms
            sought = [self._with_guid(one.topic, one.guid)]
            _, searched = logs.find(sought, since=since, deadline=self._deadline)
        found.gaps += searched.gaps
        found.add(hit.place for hit in searched.hits)
        return found

    def _look_at(self, logs: Logs, one: "_Message", place: EntryLocation, found: "_Found") -> None:
        ends = logs.ends(one.topic, place.source)
        if ends is None:
            found.gaps.append(f"{logs.name} broker {place.source.broker_id} does not answer")
        elif place.offset < ends[0]:
            found.deleted.append(place)
        else:
            try:
                hits = logs.at(one.topic, place.source, place.offset)
            except KafkaError as error:
                found.gaps.append(f"{logs.name} {place.source.text} at {place.offset}: {error}")
                return
            if any(hit.payload == one.payload or _is_same(one, hit) for hit in hits):
                found.add([hits[0].place])

    # --- the mirror --------------------------------------------------------------------------

    def _maps(self, topic: str) -> list[TracedCopy]:
        live, offline = self._logs[LIVE], self._logs[OFFLINE]
        if live is None or offline is None:
            return []
        try:
            return traced_copies(live.registry, offline.registry, self._group, topic)
        except BadZnode:
            return []

    def _copies_of(self, topic: str, places: list[EntryLocation]) -> list[EntryLocation]:
        """The places of these live places' copies, by the mirror's map."""
        found = []
        for copy in self._maps(topic):
            for place in places:
                if copy.source == place.source:
                    at = copy.offsets.translate(place.offset)
                    if at is not None and at.is_exact:
                        size = place.next_offset - place.offset
                        found.append(
                            EntryLocation(copy.target, at.target_offset, at.target_offset + size)
                        )
        return found

    def _origins_of(self, topic: str, places: list[EntryLocation]) -> list[EntryLocation]:
        """The live places that these copies came from, by the map."""
        found = []
        for copy in self._maps(topic):
            for place in places:
                if copy.target == place.source:
                    offset = copy.offsets.source_of(place.offset)
                    if offset is not None:
                        size = place.next_offset - place.offset
                        found.append(EntryLocation(copy.source, offset, offset + size))
        return found

    def _mirrored(self, topic: str, place: EntryLocation) -> Mirrored:
        """What the mirror's records in the live ZooKeeper say of a place."""
        live = self._logs[LIVE]
        assert live is not None
        stored = live.registry.get(paths.offset_path(self._group, topic, place.source))
        try:
            committed = paths.decode_offset(stored.value) if stored is not None else None
            left_out = read_left_out(live.registry, self._group, topic)
        except BadZnode:
            return Mirrored(None)
        name = TopicPartition(topic, *place.source)
        refusals = [
            entry.reason
            for entry in left_out
            if (entry.source, entry.offset) == (f"{name.broker_id}-{name.partition}", place.offset)
        ]
        return Mirrored(committed, refusals[0] if refusals else "")

    def _offline_step(self, one: "_Message", live: "_Found", offline: "_Found") -> Step:
        if offline.places:
            origins = {
                copy: place
                for place in [*live.places, *live.deleted]
                for copy in self._copies_of(one.topic, [place])
            }
            shown = tuple(place_json(p, copied_from=origins.get(p)) for p in offline.places)
            return Step(OFFLINE, State.HERE, f"mirrored{copies(shown)}", shown)
        if offline.deleted:
            shown = tuple(map(place_json, offline.deleted))
            return Step(
                OFFLINE,
                State.DELETED,
                "it was here, by the mirror's map; retention has deleted it",
                shown,
            )
        places = [*live.places, *live.deleted]
        if not places or self._logs[LIVE] is None:
            return Step(OFFLINE, State.UNKNOWN, _reasons(offline.gaps))
        # Of several live copies, one that the mirror has passed decides for all: one message.
        said = [without_copy(p, self._mirrored(one.topic, p), offline.gaps) for p in places]
        order = [State.MISSING, State.UNKNOWN, State.REFUSED, State.BEHIND]
        state, text = max(said, key=lambda found: order.index(found[0]))
        return Step(OFFLINE, state, text)

    # --- the warehouse -----------------------------------------------------------------------

    def _warehouse_step(self, one: "_Message", offline: "_Found", rows: "list[Row]") -> Step:
        if self._warehouse_dir is None:
            return Step(WAREHOUSE, State.UNKNOWN, "the warehouse was not given")
        try:
            from kafka2011.services.trace.table_rows import UNREADABLE, OutOfTime, Tables
        except ImportError:
            return Step(WAREHOUSE, State.UNKNOWN, NEEDS_TABLES)
        try:
            deadline = self._monotonic() + self._time_limit_s  # the logs may have taken all of it
            tables = Tables(self._warehouse_dir, one.topic, deadline)
            places = [*offline.places, *offline.deleted]
            there = {(place.source, place.next_offset) for place in places}
            places += [
                EntryLocation(
                    row.source, row.next_offset, row.next_offset
                )  # where it begins is not known
                for row in rows
                if (row.source, row.next_offset) not in there
            ]
            return _in_tables(tables, one, places)
        except OutOfTime:
            return Step(WAREHOUSE, State.UNKNOWN, "the table was not read, for lack of time")
        except UNREADABLE as error:
            return Step(WAREHOUSE, State.UNKNOWN, f"the table cannot be read: {first_line(error)}")


def _in_tables(tables: "Tables", one: "_Message", places: list[EntryLocation]) -> Step:
    if not places:
        return Step(WAREHOUSE, State.UNKNOWN, "no place in the offline logs is known")
    shown: list[dict[str, Any]] = []
    aside: list[dict[str, Any]] = []
    said = []
    for place in places:
        commit = tables.commit_of(place)
        rows = tables.rows(place, one.guid or None)
        quarantined = [] if rows else tables.quarantined(place, one.payload)
        for row in [*rows, *quarantined]:
            (aside if row.reason else shown).append(
                {
                    "table": row.table,
                    "version": commit.version if commit else None,
                    "committed_ms": commit.timestamp_ms if commit else None,
                    "file": row.file,
                    "row": row.row,
                    "partition": place.source.text,
                    "next_offset": place.next_offset,
                    **({"reason": row.reason} if row.reason else {}),
                }
            )
        if not rows and not quarantined:
            # If it quarantined any, this one may have been among them, and dropped since.
            is_proved = (
                commit is not None and not commit.has_quarantined and tables.has_files(commit.files)
            )
            loaded = Loaded(
                tables.loaded_up_to(place.source), commit is not None and commit.is_gap, is_proved
            )
            said.append(without_row(place, loaded))
    if shown:
        return Step(WAREHOUSE, State.HERE, f"a row{copies(shown)}", tuple(shown))
    if aside:
        return Step(WAREHOUSE, State.QUARANTINED, aside[0]["reason"], tuple(aside))
    order = [State.MISSING, State.UNKNOWN, State.BEHIND]
    state, text = max(said, key=lambda found: order.index(found[0]))
    return Step(WAREHOUSE, state, text)


@dataclass(slots=True)
class _Located:
    """The message that the question is about, and what is known of its places; `others`: the
    first further messages that fit."""

    topic: str
    payload: bytes | None
    live: list[EntryLocation] = field(default_factory=list)
    offline: list[EntryLocation] = field(default_factory=list)
    rows: "list[Row]" = field(default_factory=list)
    searched: dict[str, Searched] = field(default_factory=dict)  # tier -> its search by guid
    others: list[dict[str, Any]] = field(default_factory=list)


def _asked_first(hits: list[Hit], number: int) -> list[Hit]:
    """The messages of an entry, the one of this number first. Raises NotFound if it has fewer."""
    if number >= len(hits):
        raise NotFound(f"the entry at offset {hits[0].place.offset} has {len(hits)} messages only")
    return [hits[number], *hits[:number], *hits[number + 1 :]]


def _located(topic: str, tier: str, hits: list[Hit]) -> _Located:
    """The first of the hits, with those that are copies of it."""
    found = _Located(topic, hits[0].payload)
    for hit in hits:
        if hit.payload == hits[0].payload:
            (found.live if tier == LIVE else found.offline).append(hit.place)
        else:
            found.others.append({"topic": topic, "tier": tier, **place_json(hit.place)})
    del found.others[OTHERS_MAX:]
    return found


@dataclass(frozen=True, slots=True)
class _Message:
    """The message. `payload` None: no log has it any more; `guid` may be known all the same."""

    topic: str
    payload: bytes | None
    guid: bytes
    header: Header | None


class _Found:
    """Places of the message in a cluster; `gaps`: why there may be others."""

    def __init__(self) -> None:
        self.places: list[EntryLocation] = []
        self.deleted: list[EntryLocation] = []
        self.gaps: list[str] = []

    def add(self, places: Any) -> None:
        self.places += [place for place in dict.fromkeys(places) if place not in self.places]

    def add_deleted(self, places: list[EntryLocation], logs: Logs | None, topic: str) -> None:
        """Add those of the places that are now below the start of their logs."""
        for place in places:
            ends = logs.ends(topic, place.source) if logs is not None else None
            if ends is not None and place.offset < ends[0]:
                self.deleted.append(place)


def _produced(header: Header | None) -> Step:
    if header is None:
        text = "it has no header that says which server made it, and when"
        return Step(PRODUCED, State.UNKNOWN, text)
    shown = {"server": header.server, "service": header.service, "time_ms": header.time_ms}
    return Step(PRODUCED, State.HERE, f"made by {header.server}", (shown,))


def _live_step(live: _Found) -> Step:
    if live.places:
        shown = tuple(map(place_json, live.places))
        return Step(LIVE, State.HERE, f"in the log{copies(shown)}", shown)
    if live.deleted:
        shown = tuple(map(place_json, live.deleted))
        return Step(LIVE, State.DELETED, "retention deleted it", shown)
    return Step(LIVE, State.UNKNOWN, _reasons(live.gaps))


def _reasons(gaps: list[str]) -> str:
    return "; ".join(["it was not found", *dict.fromkeys(gaps)])


def _is_same(one: _Message, hit: Hit) -> bool:
    """Whether a message at the right place is the one, when its guid but no payload is known."""
    return one.payload is None and bool(one.guid) and one.guid in hit.payload
