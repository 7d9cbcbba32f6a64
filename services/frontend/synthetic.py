"""Synthetic member activity: a pure function of (seed, rate, start), so that totals are known.

Members browse: they view pages, are shown items on them (impressions), some of them advertisements,
click on some of these, and search, log in, share and change their profiles. They connect, write
status updates, and like and comment on what their connections write. A few scrapers read profile
after profile, and a few spammers comment on everything. Event number i (from 0) is scheduled at
start + i / rate; that is its header.time. Events are generated in blocks, each from a generator
seeded with (seed, block), so any part can be made without the parts before it, and a restarted
frontend resumes anywhere.

A block begins with new connections, then posts (status updates and shares to the network). A click
follows, in the same block, the impression that it names, and that impression the search, if any,
whose result it is. A like or comment names a post of the last POST_BLOCKS blocks, including this
one; except for spam it is by a member whom an earlier connection event connected with the post's
author.
"""

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from kafka2011.events import topics
from kafka2011.events.codec import prefix_of
from kafka2011.events.primitives import NULL, PRESENT, long, optional_text, text
from kafka2011.services.frontend.campaigns import CAMPAIGNS
from kafka2011.services.frontend.members import (
    MEMBERS,
    Connections,
    host_of,
    name_of,
    scrapers,
    spammers,
)

BLOCK_EVENTS: Final = 500
CONNECTIONS: Final = 12  # new ones at the beginning of a block
POSTS: Final = 6  # after them
POST_BLOCKS: Final = 20  # blocks, its own and those after it, in which a post gets likes
PAGES: Final = 2_000
SCRAPER_AGENT: Final = b"python-urllib/2.7"

# An event's key: a member, or the item of an impression.
Key = int | str
ITEM_TOPICS: Final = (topics.IMPRESSION,)  # keyed by item, if that is set
KEYED_TOPICS: Final = (
    *(topics.PAGE_VIEW, topics.SEARCH, topics.CLICK),  # sessions, and who views what together
    *(topics.STATUS_UPDATE, topics.SHARE, topics.LIKE, topics.COMMENT),  # the feed
)

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
    b"machine learning",
    b"sales manager",
    b"stream processing",
    b"nurse",
)
_SECTIONS: Final = (b"headline", b"position", b"skills", b"photo")
_CHANNELS: Final = (b"network", b"group", b"mail")
_UPDATES: Final = (
    b"Reading a paper about %s",
    b"We are hiring: %s",
    b"Who can recommend a course on %s?",
    b"Just gave my first talk about %s",
    b"Ten years of %s, and still learning",
)
_COMMENTS: Final = (b"Congratulations!", b"Well said.", b"Thanks for this.", b"I would like that.")
_SPAM: Final = b"Earn $5000 a week from home, see www.example.net/easy"
_STATUSES: Final = (200,) * 94 + (304, 304, 404, 404, 403, 500)


_SCRAPERS: Final = scrapers()
_SPAMMERS: Final = spammers()
# The fields of an impression or click after the item's position: neither from a search nor an ad.
_NO_AD: Final = NULL + NULL + NULL + long(0)
# For each campaign: the item, and these fields of an impression of it and of a click on it.
_ADS: Final = tuple(
    (
        b"ad-" + campaign.name.encode(),
        NULL + NULL + optional_text(campaign.name.encode()) + long(campaign.impression_micros),
        NULL + NULL + optional_text(campaign.name.encode()) + long(campaign.click_micros),
    )
    for campaign in CAMPAIGNS
)


class Planned(NamedTuple):
    """One event without its time and guid: `body` is the Avro after event_time.

    `references` follow it: the guid of the event with that number, and the Avro after that. `key`
    is a member: the one who acted, for events that sessions are made of; the post's author, for
    those that a feed is made of. For an impression it is the item shown. None if no use needs an
    order or a place.
    """

    topic: str
    body: bytes
    references: tuple[tuple[int, bytes], ...] = ()
    key: Key | None = None


class Post(NamedTuple):
    """A status update or share: the number of its event, and the connection whose popular end is
    its author."""

    number: int
    connection: int


def schedule_ms(number: int, rate: int, start_ms: int) -> int:
    """When event `number` is due: ms since the epoch."""
    return start_ms + number * 1000 // rate


def due_count(now_ms: int, rate: int, start_ms: int) -> int:
    """How many events are due at `now_ms`."""
    if now_ms < start_ms:
        return 0
    # The largest n for which event n - 1 is due: (n - 1) * 1000 // rate <= elapsed.
    return ((now_ms - start_ms + 1) * rate - 1) // 1000 + 1


class Activity:
    """The members' activity for one seed; keeps the last block generated."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._pages = [_page(n) for n in range(PAGES)]
        self._pages_text = [text(page) for page in self._pages]
        self._agents = [PRESENT + text(agent) for agent in _AGENTS]
        self._connections = Connections(seed)
        self._posts: dict[int, list[Post]] = {}  # of the last blocks
        self._block = -1
        self._planned: list[Planned] = []

    def planned(self, number: int) -> Planned:
        """The event with that number."""
        block, index = divmod(number, BLOCK_EVENTS)
        if block != self._block:
            self._planned = self._draw(block)
            self._block = block
        return self._planned[index]

    def _draw(self, block: int) -> list[Planned]:
        rng = random.Random((self._seed << 40) ^ block)
        first = block * BLOCK_EVENTS
        events = self._new_connections(block)
        events += self._post(rng, block)
        reactions: set[tuple[int, int]] = set()
        while len(events) < BLOCK_EVENTS:
            drawn = rng.random()
            member = int(MEMBERS * rng.random() ** 3) + 1  # a few members are very active
            if drawn < 0.685:
                self._browse(rng, member, first, events)
            elif drawn < 0.765:
                self._search(rng, member, first, events)
            elif drawn < 0.905:
                self._react(rng, block, reactions, events)
            elif drawn < 0.965:
                self._login(rng, member, events)
            elif drawn < 0.99:
                self._scrape(rng, events)
            else:
                self._spam(rng, block, events)
        del events[BLOCK_EVENTS:]
        return events

    # --- connections, posts and what is said about them --------------------------------------

    def _new_connections(self, block: int) -> list[Planned]:
        events = []
        for number in range(block * CONNECTIONS, (block + 1) * CONNECTIONS):
            other, member = self._connections.ends(number)
            body = _member(member) + _member(other)
            events.append(Planned(topics.CONNECTION, body))
        return events

    def _posts_of(self, block: int) -> list[Post]:
        """The block's posts, from a separate generator, since later blocks refer to them."""
        found = self._posts.get(block)
        if found is None:
            rng = random.Random((self._seed << 40) ^ (1 << 39) ^ block)
            first = block * BLOCK_EVENTS + CONNECTIONS
            formed = (block + 1) * CONNECTIONS
            found = [Post(first + n, rng.randrange(formed)) for n in range(POSTS)]
            while len(self._posts) > POST_BLOCKS:
                del self._posts[next(iter(self._posts))]
            self._posts[block] = found
        return found

    def _post(self, rng: random.Random, block: int) -> list[Planned]:
        events = []
        for post in self._posts_of(block):
            author = self._author_of(post)
            if rng.random() < 0.3:
                page = self._pages_text[int(PAGES * rng.random() ** 2)]
                body = long(author) + page + text(b"network")
                events.append(Planned(topics.SHARE, body, key=author))
                continue
            words = rng.choice(_UPDATES) % rng.choice(_QUERIES)
            body = _member(author) + text(words)
            events.append(Planned(topics.STATUS_UPDATE, body, key=author))
        return events

    def _react(
        self,
        rng: random.Random,
        block: int,
        made: set[tuple[int, int]],
        events: list[Planned],
    ) -> None:
        """Add a like or a comment by a member whom the post's author knew when writing it.

        Likes of a post that is `age` blocks old come from every POST_BLOCKSth of the author's
        connections, beginning at `age`, so that none gives two likes.
        """
        age = min(int(POST_BLOCKS * rng.random() ** 2), block)
        post = rng.choice(self._posts_of(block - age))
        formed = (block - age + 1) * CONNECTIONS
        known = self._connections.same_popular(post.connection, formed)
        if known <= age:
            return
        index = age + POST_BLOCKS * rng.randrange((known - age - 1) // POST_BLOCKS + 1)
        chosen = self._connections.of_same_popular(post.connection, index)
        author, member = self._connections.ends(chosen)
        if rng.random() < 0.2:
            events.append(_comment(member, post, author, rng.choice(_COMMENTS)))
        elif (post.number, index) not in made:
            made.add((post.number, index))
            references = ((post.number, long(author)),)
            events.append(Planned(topics.LIKE, _member(member), references, author))

    def _spam(self, rng: random.Random, block: int, events: list[Planned]) -> None:
        member, _ = rng.choice(_SPAMMERS)
        for _ in range(rng.randrange(5, 15)):
            age = min(rng.randrange(POST_BLOCKS), block)
            post = rng.choice(self._posts_of(block - age))
            events.append(_comment(member, post, self._author_of(post), _SPAM))

    def _author_of(self, post: Post) -> int:
        return self._connections.ends(post.connection)[0]

    # --- the site's pages ---------------------------------------------------------------------

    def _browse(self, rng: random.Random, member: int, first: int, events: list[Planned]) -> None:
        page = int(PAGES * rng.random() ** 2)
        self._view(rng, member, page, events)
        if rng.random() < 0.3:  # a member who views a page also views the related one
            self._view(rng, member, page ^ 4, events)
        self._impressions(rng, member, self._pages_text[page], first, events)
        if rng.random() < 0.03:
            body = long(member) + self._pages_text[page] + text(rng.choice(_CHANNELS))
            events.append(Planned(topics.SHARE, body, key=member))

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
                text(host_of(member).encode()),
                self._agents[member & 3],
            )
        )
        events.append(Planned(topics.PAGE_VIEW, body, key=member))

    @staticmethod
    def _impressions(
        rng: random.Random, member: int, page: bytes, first: int, events: list[Planned]
    ) -> None:
        """Add up to four items beside a page's own content, a quarter of them advertisements."""
        shown = []
        for position in range(rng.randrange(5)):
            item, impression, click = b"job-%d" % rng.randrange(5_000), _NO_AD, _NO_AD
            if rng.random() < 0.25:
                item, impression, click = rng.choice(_ADS)
            body = long(member) + page + text(item) + long(position)
            shown.append((first + len(events), body, click))
            events.append(Planned(topics.IMPRESSION, body + impression, key=item.decode()))
        for number, body, click in shown:
            if rng.random() < 0.1:  # a click repeats the body, and names its impression
                events.append(Planned(topics.CLICK, body, ((number, click),), member))

    @staticmethod
    def _search(rng: random.Random, member: int, first: int, events: list[Planned]) -> None:
        """Add a search and its results, of which the upper ones are clicked more."""
        query = int(len(_QUERIES) * rng.random() ** 2)
        found = 0 if rng.random() < 0.08 else 1 + rng.randrange(1_000)
        searched = text(_QUERIES[query])
        of_search = ((first + len(events), PRESENT + searched + NULL + long(0)),)
        took = long(3 + int(rng.expovariate(0.05)))
        body = long(member) + searched + long(found) + took
        events.append(Planned(topics.SEARCH, body, key=member))
        shown = []
        for position in range(min(found, rng.randrange(3, 9))):
            item = b"job-%d" % (500 * query + int(500 * rng.random() ** 3))
            body = long(member) + text(b"/search") + text(item) + long(position)
            shown.append((first + len(events), body))
            events.append(Planned(topics.IMPRESSION, body + PRESENT, of_search, item.decode()))
        for position, (number, body) in enumerate(shown):
            if rng.random() < 0.3 / (position + 1):
                references = ((number, PRESENT), *of_search)
                events.append(Planned(topics.CLICK, body, references, member))

    def _login(self, rng: random.Random, member: int, events: list[Planned]) -> None:
        succeeded = b"\x01" if rng.random() < 0.95 else b"\x00"
        body = long(member) + text(host_of(member).encode()) + self._agents[member & 3] + succeeded
        events.append(Planned(topics.LOGIN, body))
        if succeeded == b"\x01" and member % 2 == 0:
            self._update_profile(member, events)

    @staticmethod
    def _update_profile(member: int, events: list[Planned]) -> None:
        section = _SECTIONS[member // 4 & 3]
        value = NULL if section == b"photo" else PRESENT + text(b"%s of %d" % (section, member))
        body = long(member) + text(section) + value
        events.append(Planned(topics.PROFILE_UPDATE, body))

    def _scrape(self, rng: random.Random, events: list[Planned]) -> None:
        member, host = rng.choice(_SCRAPERS)
        profile = rng.randrange(MEMBERS)
        for n in range(rng.randrange(5, 15)):
            body = b"".join(
                (
                    long(member),
                    text(b"/in/%d" % (profile + n)),
                    NULL,
                    long(200),
                    PRESENT,
                    long(9_000),
                    text(host.encode()),
                    optional_text(SCRAPER_AGENT),
                )
            )
            events.append(Planned(topics.PAGE_VIEW, body, key=member))


def _page(n: int) -> bytes:
    if n == 0:
        return b"/home"
    kind = (b"/in/%d", b"/jobs/view/%d", b"/company/%d?trk=nav", b"/search?page=%d")[n % 4]
    return kind % n


def _member(member: int) -> bytes:
    """The fields that name the acting member."""
    return long(member) + text(name_of(member).encode())


def _comment(member: int, post: Post, author: int, words: bytes) -> Planned:
    behind = long(author) + text(words) + text(host_of(member).encode())
    return Planned(topics.COMMENT, _member(member), ((post.number, behind),), author)


class ActivityEncoder:
    """Makes planned events into payloads: for one run (8 bytes), one server, one schedule.

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
        keys_items: bool = False,
    ) -> None:
        assert len(run_id) == 8
        self._keys_items = keys_items
        self._activity = Activity(seed)
        self._run_id = run_id
        self._names = text(server.encode()) + text(service.encode())
        self._starts = {topic: prefix(topic) + run_id for topic in topics.ACTIVITY_TOPICS}
        self._rate = rate
        self.start_ms = start_ms  # may be changed between two events
        self._time = (-1, b"")

    def encode(self, number: int) -> tuple[str, int, bytes]:
        """Topic, header.time and payload of event `number`."""
        topic, body, references, _ = self._activity.planned(number)
        time_ms = self.start_ms + number * 1000 // self._rate
        if time_ms != self._time[0]:
            encoded = long(time_ms)
            self._time = (time_ms, encoded + self._names + encoded)  # event_time is the same
        payload = b"".join((self._starts[topic], number.to_bytes(8, "big"), self._time[1], body))
        for refers_to, behind in references:
            payload += self._run_id + refers_to.to_bytes(8, "big") + behind
        return topic, time_ms, payload

    def key(self, number: int) -> Key | None:
        """The key of event `number`."""
        planned = self._activity.planned(number)
        return planned.key if self._keys_items or planned.topic not in ITEM_TOPICS else None
