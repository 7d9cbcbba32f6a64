"""Which HTTP requests a process answers: those that name this machine, none from foreign web pages.

A web page that a user opens elsewhere can make the user's browser send requests to this process:
directly, or (DNS rebinding) by pointing its own host name at this machine's address. The browser
then names the page's host in `Host`, or its origin in `Origin`. One rule for every HTTP port:

- `Host` must be an IP address, a name without a dot (localhost, a container's name), the name of
  this machine, the address that the server is bound to, or listed in `http.hosts`. The public DNS
  holds none of the first two. A request without Host does not come from a browser.
- `Origin`, where there is one, must be the host and port that the request was sent to.

Pure.
"""

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

REFUSED = 421  # the status of refused requests: Misdirected Request


class HttpAccess:
    """The rule for one server: bound to `bind`, and addressed by the names `hosts` as well."""

    def __init__(self, bind: str, hosts: Iterable[str] = ()) -> None:
        self._names = {
            bind.lower(),
            socket.gethostname().lower(),
            *(name.lower() for name in hosts),
        }

    def refusal(self, host: str | None, origin: str | None) -> str:
        """Why a request with these headers is refused, in one line; "" when it is answered."""
        if host is not None and not self._is_ours(_without_port(host)):
            return f"{host!r} is not a name of this server; http.hosts adds names"
        if origin is not None and _place_of(origin) != (host or "").lower():
            return f"a page from {origin!r} may not use this server"
        return ""

    def _is_ours(self, name: str) -> bool:
        if name in self._names or ("." not in name and ":" not in name):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _place_of(origin: str) -> str | None:
    """The host and port of an origin; None when it is not a URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _without_port(host: str) -> str:
    """`host`, `host:port`, `[::1]`, `[::1]:port` or `::1` without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    name, _, port = host.rpartition(":")
    return (name if name and ":" not in name and port.isdecimal() else host).lower()
