"""Which servers an audit counts, where several live datacenters are mirrored into one offline one.

The live tier belongs to one datacenter. Messages in the tiers behind it came from all of them and
are distinguished by the server in their header: one audit counts the servers that match a rule, the
other those that do not, so that every message is counted by exactly one.
"""

import re
from collections.abc import Callable
from functools import lru_cache

SERVERS_REMEMBERED = 10_000
OWN_TIER = "live"  # everything there belongs to the datacenter, whatever the server

IsOurs = Callable[[str], bool]  # by server


def server_filter(whitelist: str, blacklist: str) -> IsOurs | None:
    """A filter by a regular expression over the whole server name; None when both are empty.

    Raises ValueError when both are given or one is not a regular expression.
    """
    if whitelist and blacklist:
        raise ValueError("audit.servers.whitelist and audit.servers.blacklist exclude each other")
    if not (whitelist or blacklist):
        return None
    try:
        matches = re.compile(whitelist or blacklist).fullmatch
    except re.error as error:
        raise ValueError(
            f"audit.servers: {whitelist or blacklist!r} is not a regular expression: {error}"
        ) from None

    @lru_cache(SERVERS_REMEMBERED)
    def is_ours(server: str) -> bool:
        return (matches(server) is not None) == bool(whitelist)

    return is_ours
