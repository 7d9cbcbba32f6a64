"""The header that every event starts with, and the limits that a peek accepts.

0    1   form byte, 0
1    4   the schema's id in the registry; in the 2011 form 16 bytes of MD5 (events.forms)
5   16   header.guid
21  1-10 header.time     zigzag varint, ms since the epoch
..  1-.. header.server   zigzag varint length, UTF-8
..  1-.. header.service  zigzag varint length, UTF-8
..       the body
"""

from typing import NamedTuple

FORM_BYTE = 0
PREFIX_BYTES_ID = 1 + 4
PREFIX_BYTES_2011 = 1 + 16
GUID_BYTES = 16
# Of a server's or service's name. Counters are kept per server, so names in hostile messages must
# be bounded; 255 is the longest host name in DNS.
NAME_BYTES_MAX = 255
# Key in `count_by_window`'s counts of messages whose header cannot be read.
UNREADABLE = (-1, "unreadable-header")


class Header(NamedTuple):
    """An event's header: `guid` of 16 bytes; `time_ms` since the epoch, never negative."""

    guid: bytes
    time_ms: int
    server: str
    service: str
