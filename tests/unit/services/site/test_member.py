"""A member takes each event once, and what it saves contains exactly its offsets."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastavro.utils import generate_one

from kafka2011.consumer.batch import Batch
from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.events import codec
from kafka2011.events.codec import Record
from kafka2011.events.forms import FORMS_2011
from kafka2011.events.schemas import physical_schema
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.events.topics import LOGIN, PAGE_VIEW, SITE_ABUSE
from kafka2011.protocol import message_set
from kafka2011.runtime.clock import Clock
from kafka2011.services.site.app import DirectoryInUse, lock_directory, uses_of
from kafka2011.services.site.checkpoint import CheckpointDamaged
from kafka2011.services.site.config import USES, SiteConfig
from kafka2011.services.site.member import CHECKPOINT, UseMember
from kafka2011.services.site.results import ResultWriter
from kafka2011.services.site.trending import Trending
from kafka2011.services.site.use import Use, time_of
from tests.support.clock import ManualClock
from tests.unit.services.site.events import NOW_MS, view

NAME = TopicPartition(PAGE_VIEW, 1, 0)
VIEWS = 300
PAYLOADS = [
    codec.encode(
        PAGE_VIEW, view(f"/in/{number % 7}") | {"referer": None, "status": 200, "bytes": 1}
    )
    for number in range(VIEWS)
]
LOG = message_set.encode(PAYLOADS)
ENDS = [0, *(end for _, end in message_set.messages(LOG, 0))]


class Connector:
    """What a member asks of its connector."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.commits = 0
        self.refused: list[TopicPartition] = []
        self.sought: list[int] = []
        self.starts: dict[TopicPartition, int | None] = {NAME: 0}
        self.resets: dict[TopicPartition, int] = {}
        self.waiting = 0

    def lag(self) -> dict[TopicPartition, int | None]:
        return {NAME: self.waiting}

    def positions(self) -> dict[TopicPartition, int | None]:
        return self.starts

    def commit_offsets(self, offsets: dict[TopicPartition, int]) -> list[TopicPartition]:
        self.commits += 1
        self.committed |= {name: at for name, at in offsets.items() if name not in self.refused}
        return self.refused

    def reset_to(self, name: TopicPartition) -> int | None:
        return self.resets.get(name)

    def seek(self, name: TopicPartition, offset: int) -> bool:
        self.sought.append(offset)
        return True


def batch(first: int, last: int) -> Batch:
    """The messages from number `first` up to `last`."""
    data = LOG[ENDS[first] : ENDS[last]]
    payloads, _ = Chunk(*NAME, ENDS[first], data, ENDS[last]).take_payloads()
    return Batch(*NAME, ENDS[first], ENDS[last], payloads, memoryview(data))


def no_sender() -> Any:
    raise AssertionError("nothing is written here")


@pytest.fixture
def member(tmp_path: Path) -> Callable[..., UseMember]:
    config = SiteConfig(data_dir=tmp_path, result_interval_ms=0)
    codec_2011 = TopicCodec(FORMS_2011)

    def made(use: Use | None = None, clock: Clock = lambda: NOW_MS) -> UseMember:
        writer = ResultWriter(no_sender, codec_2011, "site")
        return UseMember(
            config,
            use or Trending(),
            codec_2011,
            registry=object(),  # type: ignore[arg-type]
            writer=writer,
            clock=clock,
        )

    return made


def total(found: UseMember) -> int:
    return int(found.shown()["shown"]["views"])


def test_kills_between_any_two_steps_leave_each_event_counted_once(member) -> None:
    rng = random.Random(4)
    connector: Any = Connector()
    running, at, saves = member(), 0, 0
    while at < VIEWS:
        last = min(VIEWS, at + rng.randrange(1, 20))
        running.take(batch(at, last), connector)
        at = last
        if rng.random() < 0.5:
            running._save(connector)
            saves += 1
            assert connector.committed == {NAME: ENDS[at]}
        if rng.random() < 0.4:  # killed: it begins where the group's offset is, or before
            running = member()
            committed = ENDS.index(connector.committed.get(NAME, 0))
            at = max(0, committed - rng.randrange(3))
    assert saves > 5
    assert total(running) == running.shown()["events"] == VIEWS
    assert running.shown()["missed_bytes"] == 0


def test_a_clock_that_is_set_back_keeps_no_checkpoint_from_being_saved(member) -> None:
    """None was, until it was as late again as before: a kill had all of that read again."""
    connector: Any = Connector()
    clock = ManualClock(NOW_MS)
    running = member(clock=clock)
    clock.advance(-5 * 3_600_000)
    running.take(batch(0, 1), connector)
    running._tick(connector)
    assert connector.committed == {NAME: ENDS[1]}
    running.take(batch(1, 2), connector)
    running._tick(connector)
    assert connector.committed == {NAME: ENDS[1]}, "not at each batch"
    clock.advance(SiteConfig().checkpoint_interval_ms)
    running._tick(connector)
    assert connector.committed == {NAME: ENDS[2]}


def test_a_use_is_late_while_more_than_the_last_seconds_may_be_missing(member) -> None:
    clock = ManualClock(NOW_MS + 60_000)
    running, connector = member(clock=clock), Connector()
    running._connector = connector

    def said() -> tuple[int | None, bool]:
        shown = running.shown()
        assert running.use.is_late == shown["is_late"]
        return shown["behind_ms"], shown["is_late"]

    assert said() == (None, True)
    running.take(batch(0, 100), connector)
    for connector.waiting, wanted in ((700, (60_000, True)), (0, (0, False))):
        running.lag()
        assert said() == wanted
    clock.advance(10_000)
    connector.waiting = 1
    running.lag()
    assert said() == (10_000, False)


def test_where_a_partition_begins_is_said_although_nothing_comes_of_it(member) -> None:
    connector: Any = Connector()
    quiet, unknown = TopicPartition(PAGE_VIEW, 1, 1), TopicPartition(PAGE_VIEW, 1, 2)
    connector.starts |= {quiet: 70, unknown: None}
    running = member()
    running.take(batch(0, 10), connector)
    connector.starts[NAME] = ENDS[10]
    running._save(connector)
    assert connector.committed == {NAME: ENDS[10], quiet: 70}
    running._save(connector)
    assert connector.commits == 1


def test_what_a_rebalance_was_in_the_way_of_is_stored_by_the_next_save(member) -> None:
    connector: Any = Connector()
    running = member()
    running.take(batch(0, 10), connector)
    connector.refused = [NAME]
    running._save(connector)
    assert connector.committed == {}
    connector.refused, connector.starts = [], {}
    running._save(connector)
    assert connector.committed == {}, "not owned just now"
    connector.starts = {NAME: ENDS[10]}
    running._save(connector)
    assert connector.committed == {NAME: ENDS[10]}


def test_a_batch_that_begins_in_the_middle_of_what_is_known_counts_from_there(member) -> None:
    connector: Any = Connector()
    running = member()
    running.take(batch(0, 10), connector)
    running.take(batch(5, 15), connector)
    running.take(batch(2, 9), connector)
    assert total(running) == 15


def test_behind_a_gap_it_goes_back_and_then_says_what_it_missed(member) -> None:
    connector: Any = Connector()
    running = member()
    running.take(batch(0, 10), connector)
    running.take(batch(20, 30), connector)
    assert (connector.sought, total(running)) == ([ENDS[10]], 10)
    running.take(batch(20, 30), connector)
    assert total(running) == 20
    assert running.shown()["missed_bytes"] == ENDS[20] - ENDS[10]


def test_a_log_that_was_lost_is_read_from_its_start_and_one_that_comes_again_is_not(
    member,
) -> None:
    connector: Any = Connector()
    running = member()
    running.take(batch(0, 20), connector)
    running.take(batch(0, 10), connector)  # after a rebalance, say
    assert (total(running), running.shown()["begun_anew"]) == (20, 0)
    connector.resets[NAME] = 0
    running.take(batch(0, 10), connector)
    running.take(batch(10, 12), connector)
    assert (total(running), running.shown()["begun_anew"]) == (32, 1)
    running._save(connector)
    assert connector.committed == {NAME: ENDS[12]}
    connector.resets.clear()  # owned anew
    again = member()
    again.take(batch(0, 12), connector)
    again.take(batch(12, 13), connector)
    assert (total(again), again.shown()["begun_anew"]) == (33, 0)


def test_a_position_in_the_middle_of_an_entry_is_of_another_log(member) -> None:
    """It was lost while this process was away, and is longer than that again."""
    connector: Any = Connector()
    running = member()
    data = LOG[: ENDS[2]]
    payloads, _ = Chunk(*NAME, 7, data, 7 + len(data)).take_payloads()
    running.take(batch(0, 1), connector)
    running.take(Batch(*NAME, 7, 7 + len(data), payloads, memoryview(data)), connector)
    assert (total(running), running.shown()["begun_anew"]) == (3, 1)


def test_what_is_no_event_is_counted_apart(member) -> None:
    connector: Any = Connector()
    running = member()
    data = message_set.encode([PAYLOADS[0], b"\0no event", b""])
    payloads, _ = Chunk(*NAME, 0, data, len(data)).take_payloads()
    running.take(Batch(*NAME, 0, len(data), payloads, memoryview(data)), connector)
    assert (running.status()["events"], running.status()["unreadable"]) == (1, 2)


class Unforeseen(Trending):
    """Fails on the views of /in/3, in the middle of an update."""

    def take(self, topic: str, event: Record, now_ms: int) -> None:
        if event["path"] == "/in/3":
            self._views._total += 1_000
            self._views._counts.clear()
            raise KeyError("unforeseen")
        super().take(topic, event, now_ms)


def test_an_event_that_the_use_fails_on_is_left_out_and_named_and_the_rest_counts(member) -> None:
    connector: Any = Connector()
    running = member(Unforeseen())
    with structlog.testing.capture_logs() as logged:
        running.take(batch(0, 100), connector)
        running.take(batch(100, VIEWS), connector)
    lost = len(range(3, VIEWS, 7))
    left = VIEWS - lost
    assert (total(running), running.status()["events"]) == (left, left)
    assert running.status()["unreadable"] == lost
    counts = {each["item"]: each["count"] for each in running.shown()["shown"]["viewed"]}
    assert counts == {
        f"/in/{number}": len(range(number, VIEWS, 7)) for number in range(7) if number != 3
    }
    named = [each for each in logged if each["event"] == "event_not_taken"]
    assert [each["log_level"] for each in named] == ["error"] * lost
    assert {(each["use"], each["partition"]) for each in named} == {("trending", str(NAME))}
    assert len({each["guid"] for each in named}) == lost
    running._save(connector)
    assert connector.committed == {NAME: ENDS[VIEWS]}
    again = member()
    assert (total(again), again.status()["unreadable"]) == (left, lost)


def test_a_state_that_cannot_be_made_anew_is_gone_on_with(member) -> None:
    connector: Any = Connector()
    running = member(Unforeseen())
    running.use.state = no_sender
    running.take(batch(0, 10), connector)
    assert (running.status()["events"], running.status()["unreadable"]) == (9, 1)


@pytest.mark.parametrize("topic", [LOGIN, SITE_ABUSE])
def test_an_event_of_another_schema_is_no_event(member, topic: str) -> None:
    """It is without the fields that the use reads."""
    physical = physical_schema(topic)
    connector: Any = Connector()
    running = member()
    data = message_set.encode([codec.encode(topic, generate_one(physical)), PAYLOADS[0]])
    payloads, _ = Chunk(*NAME, 0, data, len(data)).take_payloads()
    running.take(Batch(*NAME, 0, len(data), payloads, memoryview(data)), connector)
    assert (running.status()["events"], running.status()["unreadable"]) == (1, 1)


def test_an_event_of_the_future_counts_as_of_now_and_a_long_text_is_cut(member) -> None:
    connector: Any = Connector()
    running = member()
    fields = {"referer": None, "status": 200, "bytes": 1}
    paths = [f"/{'x' * 5_000}{number}" for number in range(2)]
    events = [view(path, NOW_MS + 10**12) | fields for path in paths]
    seen: list[Any] = []
    running.use.take = lambda topic, event, now_ms: seen.append((event, now_ms))
    data = message_set.encode([codec.encode(PAGE_VIEW, each) for each in events])
    payloads, _ = Chunk(*NAME, 0, data, len(data)).take_payloads()
    running.take(Batch(*NAME, 0, len(data), payloads, memoryview(data)), connector)
    assert {time_of(event) for event, _ in seen} == {NOW_MS}
    cut = {event["path"] for event, _ in seen}
    assert len(cut) == 2
    assert max(map(len, cut)) < 400
    assert all(event["agent"] == "Mozilla" for event, _ in seen)


def test_a_state_of_another_version_is_refused_with_what_to_do(member, tmp_path: Path) -> None:
    connector: Any = Connector()
    running = member()
    running.take(batch(0, 10), connector)
    running.use.state = lambda: {"other": 1}
    running._save(connector)
    assert (tmp_path / "trending" / CHECKPOINT).exists()
    with pytest.raises(CheckpointDamaged, match="of another version"):
        member()


def test_a_directory_belongs_to_one_process(tmp_path: Path) -> None:
    with lock_directory(tmp_path), pytest.raises(DirectoryInUse, match=str(tmp_path)):
        lock_directory(tmp_path)
    lock_directory(tmp_path).close()


def test_the_settings_choose_the_uses() -> None:
    assert [use.name for use in uses_of(SiteConfig())] == list(USES)
    assert [use.name for use in uses_of(SiteConfig(uses=("ads", "abuse")))] == ["ads", "abuse"]
    assert SiteConfig().group_of("ads") == "site-ads"


@pytest.mark.parametrize("words", ["", "ads,ads", "weather"])
def test_other_uses_are_refused(words: str) -> None:
    from kafka2011.services.site.config import uses

    with pytest.raises(ValueError, match="must be some of trending, search"):
        uses(words)
