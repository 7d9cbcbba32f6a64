"""The newsfeed: what a member's connections wrote, shared, liked and commented on, newest first.

A story is a post with what was said about it. It is in the feed of those connected with its author,
and of those connected with a member who liked it or commented on it. A like may be read before its
post, since they are in different topics: the story waits for its post, unseen.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kafka2011.events.codec import Record
from kafka2011.events.topics import COMMENT, CONNECTION, LIKE, SHARE, SITE_NEWSFEED, STATUS_UPDATE
from kafka2011.runtime.clock import has_passed
from kafka2011.services.site.use import Result, Use, time_of

STORIES_MAX = 1_000
SAID_MAX = 20  # likes, and comments, kept of a story; all are counted
CONNECTIONS_MAX = 50_000  # the newest ones
NAMES_MAX = 50_000
TEXT_MAX = 280
SHOWN = 12
RECENT_CONNECTIONS = 500
QUIET_MS = 30_000  # a story without anything new for so long goes to the result topic
CANDIDATES = 8
CHOICE_MS = 15_000  # the member shown changes this often at most


@dataclass(slots=True)
class Story:
    """A story. `likes` and `comments` are [member, name, text], oldest first."""

    kind: str = ""
    author: int = 0
    text: str = ""
    time_ms: int = 0  # of the post; 0: it was not read yet
    changed_ms: int = 0
    like_count: int = 0
    comment_count: int = 0
    likes: list[list[Any]] = field(default_factory=list)
    comments: list[list[Any]] = field(default_factory=list)
    is_told: bool = False


def who(names: list[str], count: int) -> str:
    """`Ann`, `Ann and Ben`, `Ann and 4 others`."""
    if not names:
        return f"{count} members"
    others = count - 1
    if not others:
        return names[0]
    if others == 1 and len(names) > 1:
        return f"{names[0]} and {names[1]}"
    return f"{names[0]} and {others} other{'s' if others > 1 else ''}"


class Newsfeed(Use):
    name = "newsfeed"
    topics = (CONNECTION, STATUS_UPDATE, SHARE, LIKE, COMMENT)
    result_topic = SITE_NEWSFEED

    def __init__(self) -> None:
        self._stories: OrderedDict[str, Story] = OrderedDict()
        self._edges: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._known: dict[int, set[int]] = {}
        self._names: OrderedDict[int, str] = OrderedDict()
        self._recent: deque[int] = deque(maxlen=RECENT_CONNECTIONS)
        self._counts: Counter[str] = Counter()
        self._chosen, self._chosen_at_ms = 0, 0

    def take(self, topic: str, event: Record, now_ms: int) -> None:
        del now_ms  # a story has the times of its events
        self._counts[topic] += 1
        member = event["member_id"]
        if "name" in event:
            self._name(member, event["name"])
        if topic == CONNECTION:
            self._name(event["other_id"], event["other_name"])
            self._connect(member, event["other_id"])
        elif topic in (STATUS_UPDATE, SHARE):
            story = self._story(event["header"]["guid"])
            story.kind = "shared" if topic == SHARE else "wrote"
            story.text = event["path"] if topic == SHARE else event["text"][:TEXT_MAX]
            story.author = member
            story.time_ms = time_of(event)
            story.changed_ms = max(story.changed_ms, story.time_ms)
        else:
            self._say(topic, event, member)

    def _say(self, topic: str, event: Record, member: int) -> None:
        story = self._story(event["post"])
        story.author = event["author_id"]
        story.changed_ms = max(story.changed_ms, time_of(event))
        story.is_told = False
        said, text = story.likes, ""
        if topic == LIKE:
            story.like_count += 1
        else:
            story.comment_count += 1
            said, text = story.comments, event["text"][:TEXT_MAX]
        said.append([member, event["name"], text])
        del said[:-SAID_MAX]

    def _story(self, guid: bytes) -> Story:
        name = guid.hex()
        story = self._stories.get(name)
        if story is None:
            story = self._stories[name] = Story()
            if len(self._stories) > STORIES_MAX:
                self._stories.popitem(last=False)
        return story

    def _name(self, member: int, name: str) -> None:
        self._names[member] = name
        self._names.move_to_end(member)
        if len(self._names) > NAMES_MAX:
            self._names.popitem(last=False)

    def _connect(self, member: int, other: int) -> None:
        if member == other:
            return
        edge = (min(member, other), max(member, other))
        self._recent.extend(edge)
        if edge in self._edges:
            return
        self._edges[edge] = None
        self._known.setdefault(member, set()).add(other)
        self._known.setdefault(other, set()).add(member)
        if len(self._edges) > CONNECTIONS_MAX:
            one, two = self._edges.popitem(last=False)[0]
            for this, that in ((one, two), (two, one)):
                self._known[this].discard(that)
                if not self._known[this]:
                    del self._known[this]

    # --- what is shown ------------------------------------------------------------------------

    def feed(self, member: int, limit: int = SHOWN) -> list[dict[str, Any]]:
        """The newest stories for `member`, by the time of the post."""
        known = self._known.get(member, set())
        found = []
        for name, story in self._stories.items():
            if not story.time_ms or story.author == member:
                continue
            likers = [name for each, name, _ in story.likes if each in known]
            talkers = [each for each in story.comments if each[0] in known]
            if story.author in known or likers or talkers:
                found.append((story.time_ms, name, story, likers, talkers))
        found.sort(key=lambda each: (-each[0], each[1]))
        return [self._entry(*each[1:], known) for each in found[:limit]]

    def _entry(
        self,
        name: str,
        story: Story,
        likers: list[str],
        talkers: list[list[Any]],
        known: set[int],
    ) -> dict[str, Any]:
        others = [each for _, each, _ in story.likes if each not in likers]
        newest = (talkers or story.comments)[-1:]
        return {
            "post": name,
            "at_ms": story.time_ms,
            "author": self._names.get(story.author, f"Member {story.author}"),
            "is_known": story.author in known,
            "kind": story.kind,
            "text": story.text,
            "likes": story.like_count,
            "liked_by": who([*likers, *others], story.like_count) if story.like_count else "",
            "comments": story.comment_count,
            "comment": {"name": newest[0][1], "text": newest[0][2]} if newest else None,
        }

    def _choose(self, now_ms: int) -> int:
        """A member who connected a moment ago, has many connections, and has much to read."""
        if self._recent and has_passed(CHOICE_MS, self._chosen_at_ms, now_ms):
            self._chosen_at_ms = now_ms
            known = sorted(
                set(self._recent), key=lambda each: (-len(self._known.get(each, ())), each)
            )
            self._chosen = max(known[:CANDIDATES], key=lambda each: len(self.feed(each)))
        return self._chosen

    def shown(self, now_ms: int) -> Mapping[str, Any]:
        return {**self.shown_of(self._choose(now_ms)), "counts": dict(self._counts)}

    def shown_of(self, member: int) -> dict[str, Any]:
        """The feed of one member, with whose it is."""
        return {
            "member": member,
            "name": self._names.get(member, f"Member {member}"),
            "connections": len(self._known.get(member, ())),
            "stories": self.feed(member),
        }

    def results(self, now_ms: int) -> list[Result]:
        """The stories about which nothing more was said for a while."""
        found = []
        for name, story in self._stories.items():
            if story.is_told or not story.time_ms or now_ms < story.changed_ms + QUIET_MS:
                continue
            story.is_told = True
            fields = {
                "post": bytes.fromhex(name),
                "author_id": story.author,
                "kind": story.kind,
                "text": story.text,
                "likes": story.like_count,
                "comments": story.comment_count,
                "liked_by": who([each for _, each, _ in story.likes], story.like_count)
                if story.like_count
                else None,
            }
            found.append(Result(SITE_NEWSFEED, story.changed_ms, name, fields))
        return found

    def state(self) -> Mapping[str, Any]:
        return {
            "stories": {name: asdict(story) for name, story in self._stories.items()},
            "edges": list(self._edges),
            "names": list(self._names.items()),
            "recent": list(self._recent),
            "counts": self._counts,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._stories.update({name: Story(**each) for name, each in state["stories"].items()})
        for one, other in state["edges"]:
            self._connect(one, other)
        self._names.update({int(member): name for member, name in state["names"]})
        self._recent.clear()
        self._recent.extend(state["recent"])
        self._counts.update(state["counts"])
