"""Which names may be topics and groups: they become directories, znodes and log lines.

Two rules for topics. "strict" is the default: safe for every file system, shell and dashboard.
"0.7" is what the original broker accepts (spaces, colons, non-ASCII letters), for where those are
needed. Neither lets a name leave its directory.
"""

import re
from typing import Final, Literal

from kafka2011.protocol.errors import IllegalGroupName, IllegalTopicName

TopicRule = Literal["strict", "0.7"]

NAME_CHARACTERS_MAX: Final = 249  # 255, a file name's limit, less "-" and five digits of partition
NAME_UTF16_UNITS_MAX: Final = 255  # 0.7's `max.topic.name.length`
FILTER_CHARACTERS_MAX: Final = 256

_STRICT = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARACTERS_MAX}}}")
# Slash, control characters, surrogates and private use, specials.
_REFUSED_BY_07 = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_topic(name: str, rule: TopicRule = "strict") -> str:
    """Return `name` when it may be a topic under `rule`.

    Unlike 0.7: "strict" narrows the characters and the length, and refuses a leading dot (those
    are the broker's own files).

    Raises:
      IllegalTopicName: produce closes the connection, a fetch part is answered with error -1.
    """
    if rule == "strict":
        if _STRICT.fullmatch(name) is None or name.startswith("."):
            raise IllegalTopicName(f"illegal topic name {_shown(name)}")
        return name
    if (
        not name
        or name in (".", "..")
        or _REFUSED_BY_07.search(name) is not None
        or len(name) + sum(character > "\uffff" for character in name) > NAME_UTF16_UNITS_MAX
    ):
        raise IllegalTopicName(f"illegal topic name {_shown(name)}")
    return name


def hint_at_name(topic: str) -> str:
    """Behind the line of a broker that closed the connection, which is all that 0.7 answers: that
    the topic's name may be the reason; empty where it cannot be."""
    try:
        check_topic(topic)
    except IllegalTopicName:
        return f"; the broker may not take the name {_shown(topic)} (topic.name.rule)"
    return ""


def check_group(name: str) -> str:
    """Return `name` when it may be a consumer group (the strict rule of topics).

    Raises:
      IllegalGroupName: choose another; nothing was written.
    """
    if _STRICT.fullmatch(name) is None or name.startswith("."):
        raise IllegalGroupName(f"illegal group name {_shown(name)}")
    return name


def _shown(name: str) -> str:
    """`name` for a message: quoted, control characters escaped, cut to a line's length."""
    return ascii(name if len(name) <= 60 else name[:60] + "...")
