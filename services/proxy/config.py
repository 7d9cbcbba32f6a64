"""The settings of `kafka2011 proxy`, and the syntax of routes."""

from dataclasses import dataclass

from kafka2011.runtime.config import REQUIRED, address, boolean, setting, whole
from kafka2011.runtime.shared_settings import ZooKeeperConnect, shared
from kafka2011.services.proxy.faults import Faults, parse_faults

Address = tuple[str, int]


@dataclass(frozen=True)
class RouteConfig:
    """One listening address and the targets that share its connections."""

    name: str
    listen: Address
    targets: tuple[Address, ...]


def parse_routes(value: str) -> tuple[RouteConfig, ...]:
    """`[name=]host:port>host:port|host:port, ...`; a route without a name is called by its port.

    Port 0 takes a free one (the readiness line says which). Raises ValueError.
    """
    routes: list[RouteConfig] = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, equals, rest = part.rpartition("=")
        listen, arrow, targets = rest.partition(">")
        if not arrow:
            raise ValueError(f"{part!r} must be [name=]host:port>host:port|host:port")
        if equals and not name:
            raise ValueError(f"{part!r} has an empty name")
        try:
            where = _address(listen)
            to = tuple(_address(target) for target in targets.split("|"))
        except ValueError as error:
            raise ValueError(f"{part!r}: {error}") from None
        routes.append(RouteConfig(name or f"route-{len(routes)}", where, to))
    if not routes:
        raise ValueError("at least one route is needed")
    if len({route.name for route in routes}) != len(routes):
        raise ValueError("two routes have the same name")
    return tuple(routes)


def _address(text: str) -> Address:
    """`host:port`, with a host that can be looked up. Raises ValueError."""
    try:
        host, port = address(text)
    except ValueError as error:
        raise ValueError(f"each address {error}") from None
    try:
        host.encode("idna")  # what a look-up sends
    except UnicodeError as error:
        raise ValueError(f"{host!r} cannot be a host's name: {error.__cause__ or error}") from None
    return host, port


@dataclass(frozen=True, kw_only=True)
class ProxyConfig(ZooKeeperConnect):
    """One proxy process with any number of routes."""

    routes: tuple[RouteConfig, ...] = setting(
        "proxy.routes",
        REQUIRED,
        parse_routes,
        "one route for each listening address: [name=]host:port>host:port|host:port,...",
    )
    faults: Faults = setting(
        "proxy.faults", Faults(), parse_faults, "faults of every route at the start, as JSON"
    )
    control: bool = setting(
        "proxy.control",
        False,
        boolean,
        "true: faults can be set while it runs, on the metrics port (/faults); they lose messages",
    )
    frames: bool = setting(
        "proxy.frames",
        True,
        boolean,
        "true: follow the 0.7 frames from client to target, which faults that drop messages need",
    )
    connect_timeout_ms: int = setting(
        "proxy.connect.timeout.ms",
        2000,
        whole(1, 600_000),
        "longest wait for a connection to a target, ms",
    )
    retry_min_ms: int = setting(
        "proxy.retry.min.ms",
        100,
        whole(1, 600_000),
        "first pause before an unreachable target is tried again, ms; doubles",
    )
    retry_max_ms: int = setting(
        "proxy.retry.max.ms",
        3000,
        whole(1, 600_000),
        "longest pause before a target is tried again, ms",
    )
    check_interval_ms: int = setting(
        "proxy.check.interval.ms",
        0,
        whole(0, 600_000),
        "pause between requests to each target by which it must show that it serves 0.7's "
        "protocol, ms; 0: none, a target that accepts connections is up",
    )
    check_timeout_ms: int = setting(
        "proxy.check.timeout.ms",
        2000,
        whole(1, 600_000),
        "longest wait for the answer to such a request, ms; after two that fail a target is down",
    )
    zk_connect: str = shared(
        ZooKeeperConnect,
        "zk.connect",
        doc="ZooKeeper in which this process is registered; empty: not registered",
    )
