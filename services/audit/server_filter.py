"""Whose messages an audit answers for, where several live datacenters feed one offline datacenter.

The live tier is one datacenter's own. What the tiers behind it hold came from all of them and is
told apart by the server in its header: one audit counts the servers that match a rule (a prefix),
the other those that do not. So no message is left out by both.
"""

import re
from collections.abc import Callable
from functools import lru_cache

SERVERS_REMEMBERED = 10_000
OWN_TIER = "live"  # everything there belongs to the datacenter, whatever its name

IsOurs = Callable[[str], bool]  # by server


def server_filter(whitelist: str, blacklist: str) -> IsOurs | None:
    """Regular expressions over the whole name of a server; None when both are empty.

    Raises ValueError when both are given or one cannot be read.
    """
    if whitelist and blacklist:
        raise ValueError("audit.servers.whitelist and audit.servers.blacklist exclude each other")
    if not (whitelist or blacklist):
        return None
    try:
        matches = re.compile(whitelist or blacklist).fullmatch
    except re.error as error:
        raise ValueError(
            f"audit.servers: {whitelist or blacklist!r} is no regular expression: {error}"
        ) from None

    @lru_cache(SERVERS_REMEMBERED)
    def is_ours(server: str) -> bool:
        return (matches(server) is not None) == bool(whitelist)

    return is_ours
