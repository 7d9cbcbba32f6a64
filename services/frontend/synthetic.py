"""Synthetic member activity: a pure function of (seed, rate, start), so that totals are known.

Members browse: they view pages, are shown items on them (impressions), click on some of these, and
search, log in, share and change their profiles; servers report metrics of themselves; a few
scrapers read profile after profile. Event number i (from 0) is scheduled at start + i / rate; that
is its header.time. Events are generated in blocks, each from a generator seeded with (seed, block),
so any part can be made without the parts before it, and a restarted frontend resumes anywhere.

A click always follows, in the same block, the impression that it names.
"""

import random
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from kafka2011.events import topics
from kafka2011.events.codec import prefix_of
from kafka2011.events.primitives import NULL, PRESENT, long, optional_text, text
from kafka2011.events.windows import WindowCounts

BLOCK_EVENTS: Final = 500
MEMBERS: Final = 50_000
PAGES: Final = 2_000
SCRAPERS: Final = 3
SCRAPER_MEMBER_FIRST: Final = 9_000_001
SCRAPER_AGENT: Final = b"python-urllib/2.7"

_AGENTS: Final = (
    b"Mozilla/5.0 (Windows NT 6.1; WOW64; rv:5.0) Gecko/20100101 Firefox/5.0",
    b"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_6_8) AppleWebKit/534.50 Version/5.1 Safari/533.21",
    b"Mozilla/5.0 (Windows NT 6.0) AppleWebKit/535.1 (KHTML, like Gecko) Chrome/13.0.782.41",
    b"Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 5.1; Trident/4.0)",
)
_QUERIES: Final = (
    b"java engineer",
    b"kafka",
    b"data scientist",
    b"recruiter berlin",
    b"hadoop",
    b"product manager",
)
_SECTIONS: Final = (b"headline", b"position", b"skills", b"photo")
_CHANNELS: Final = (b"network", b"group", b"mail")
_METRICS: Final = ((b"requests.per.second", b"1/s"), (b"heap.used", b"bytes"), (b"gc.pause", b"ms"))
_STATUSES: Final = (200,) * 94 + (304, 304, 404, 404, 403, 500)


class Planned(NamedTuple):
    """One event without its time and guid: `body` is Avro from behind event_time.

    `refers_to` is the number of the impression that a click is for, else -1.
    """

    topic: str
    body: bytes
    refers_to: int


def schedule_ms(number: int, rate: int, start_ms: int) -> int:
    """When event `number` is due: ms since the epoch."""
    return start_ms + number * 1000 // rate


def due_count(now_ms: int, rate: int, start_ms: int) -> int:
    """How many events are due at `now_ms`."""
    if now_ms < start_ms:
        return 0
    # The largest n for which event n - 1 is due: (n - 1) * 1000 // rate <= elapsed.
    return ((now_ms - start_ms + 1) * rate - 1) // 1000 + 1


def scrapers() -> list[tuple[int, str]]:
    """Member id and host of the planted scrapers."""
    return [(SCRAPER_MEMBER_FIRST + n, _scraper_host(n).decode()) for n in range(SCRAPERS)]


def _scraper_host(n: int) -> bytes:
    return b"198.51.100.%d" % (n + 1)


class Activity:
    """The members' activity for one seed; keeps the last block generated."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._pages = [_page(n) for n in range(PAGES)]
        self._pages_text = [text(page) for page in self._pages]
        self._agents = [PRESENT + text(agent) for agent in _AGENTS]
        self._block = -1
        self._planned: list[Planned] = []

    def planned(self, number: int) -> Planned:
        """Event `number`."""
        block, index = divmod(number, BLOCK_EVENTS)
        if block != self._block:
            self._planned = self._draw(block)
            self._block = block
        return self._planned[index]

    def _draw(self, block: int) -> list[Planned]:
        rng = random.Random((self._seed << 40) ^ block)
        first = block * BLOCK_EVENTS
        events: list[Planned] = []
        while len(events) < BLOCK_EVENTS:
            drawn = rng.random()
            member = int(MEMBERS * rng.random() ** 3) + 1  # a few members are very active
            if drawn < 0.80:
                self._browse(rng, member, first, events)
            elif drawn < 0.88:
                self._search(rng, member, first, events)
            elif drawn < 0.93:
                self._login(rng, member, events)
            elif drawn < 0.97:
                events.append(_metric(rng))
            else:
                self._scrape(rng, events)
        del events[BLOCK_EVENTS:]
        return events

    def _browse(self, rng: random.Random, member: int, first: int, events: list[Planned]) -> None:
        page = int(PAGES * rng.random() ** 2)
        self._view(rng, member, page, events)
        self._impressions(rng, member, page, first, events)
        if rng.random() < 0.03:
            body = long(member) + self._pages_text[page] + text(rng.choice(_CHANNELS))
            events.append(Planned(topics.SHARE, body, -1))

    def _view(self, rng: random.Random, member: int, page: int, events: list[Planned]) -> None:
        referer = NULL if rng.random() < 0.4 else PRESENT + self._pages_text[rng.randrange(PAGES)]
        body = b"".join(
            (
                long(member),
                self._pages_text[page],
                referer,
                long(_STATUSES[rng.randrange(100)]),
                PRESENT,
                long(2_000 + rng.randrange(60_000)),
                text(_host(member)),
                self._agents[member & 3],
            )
        )
        events.append(Planned(topics.PAGE_VIEW, body, -1))

    def _impressions(
        self, rng: random.Random, member: int, page: int, first: int, events: list[Planned]
    ) -> None:
        shown = []
        for position in range(rng.randrange(5)):
            item = b"job-%d" % rng.randrange(5_000)
            body = long(member) + self._pages_text[page] + text(item) + long(position)
            shown.append((first + len(events), body))
            events.append(Planned(topics.IMPRESSION, body, -1))
        for number, body in shown:
            if rng.random() < 0.1:  # a click says the same, and which impression it is for
                events.append(Planned(topics.CLICK, body, number))

    def _search(self, rng: random.Random, member: int, first: int, events: list[Planned]) -> None:
        body = b"".join(
            (
                long(member),
                text(rng.choice(_QUERIES)),
                long(rng.randrange(1_000)),
                long(3 + int(rng.expovariate(0.05))),
            )
        )
        events.append(Planned(topics.SEARCH, body, -1))
        self._impressions(rng, member, 0, first, events)

    def _login(self, rng: random.Random, member: int, events: list[Planned]) -> None:
        succeeded = b"\x01" if rng.random() < 0.95 else b"\x00"
        body = long(member) + text(_host(member)) + self._agents[member & 3] + succeeded
        events.append(Planned(topics.LOGIN, body, -1))
        if succeeded == b"\x01" and member % 4 == 0:
            self._update_profile(member, events)

    @staticmethod
    def _update_profile(member: int, events: list[Planned]) -> None:
        section = _SECTIONS[member // 4 & 3]
        value = NULL if section == b"photo" else PRESENT + text(b"%s of %d" % (section, member))
        body = long(member) + text(section) + value
        events.append(Planned(topics.PROFILE_UPDATE, body, -1))

    def _scrape(self, rng: random.Random, events: list[Planned]) -> None:
        scraper = rng.randrange(SCRAPERS)
        profile = rng.randrange(MEMBERS)
        for n in range(rng.randrange(5, 15)):
            body = b"".join(
                (
                    long(SCRAPER_MEMBER_FIRST + scraper),
                    text(b"/in/%d" % (profile + n)),
                    NULL,
                    long(200),
                    PRESENT,
                    long(9_000),
                    text(_scraper_host(scraper)),
                    optional_text(SCRAPER_AGENT),
                )
            )
            events.append(Planned(topics.PAGE_VIEW, body, -1))


def _page(n: int) -> bytes:
    if n == 0:
        return b"/home"
    kind = (b"/in/%d", b"/jobs/view/%d", b"/company/%d?trk=nav", b"/search?page=%d")[n % 4]
    return kind % n


def _host(member: int) -> bytes:
    return b"10.%d.%d.%d" % (member >> 16 & 255, member >> 8 & 255, member & 255)


def _metric(rng: random.Random) -> Planned:
    name, unit = rng.choice(_METRICS)
    value = struct.pack("<d", round(rng.expovariate(0.01), 3))
    return Planned(topics.SERVICE_METRIC, text(name) + value + text(unit), -1)


class ActivityEncoder:
    """Planned events to payloads: of one run (8 bytes), one server, one schedule.

    `prefix` gives the first bytes of a topic's events (events.topic_codec); those of the 2011 form
    need no registry.
    """

    def __init__(
        self,
        seed: int,
        *,
        run_id: bytes,
        server: str,
        service: str,
        rate: int,
        start_ms: int,
        prefix: Callable[[str], bytes] = prefix_of,
    ) -> None:
        assert len(run_id) == 8
        self._activity = Activity(seed)
        self._run_id = run_id
        self._names = text(server.encode()) + text(service.encode())
        self._starts = {topic: prefix(topic) + run_id for topic in topics.ACTIVITY_TOPICS}
        self._rate = rate
        self.start_ms = start_ms  # may be changed between two events
        self._time = (-1, b"")

    def encode(self, number: int) -> tuple[str, int, bytes]:
        """Topic, header.time and payload of event `number`."""
        topic, body, refers_to = self._activity.planned(number)
        time_ms = self.start_ms + number * 1000 // self._rate
        if time_ms != self._time[0]:
            encoded = long(time_ms)
            self._time = (time_ms, encoded + self._names + encoded)  # event_time is the same
        payload = b"".join((self._starts[topic], number.to_bytes(8, "big"), self._time[1], body))
        if refers_to >= 0:
            payload += self._run_id + refers_to.to_bytes(8, "big")
        return topic, time_ms, payload


def expected_counts(
    seed: int, rate: int, start_ms: int, count: int, window_ms: int
) -> dict[tuple[str, int], int]:
    """Messages by (topic, window start) of the first `count` events, without sending any."""
    activity = Activity(seed)
    counts = WindowCounts(window_ms)
    for number in range(count):
        counts.add(activity.planned(number).topic, schedule_ms(number, rate, start_ms), 1, 0)
    return {(cell.topic, cell.window_start): cell.count for cell in counts.as_list()}
