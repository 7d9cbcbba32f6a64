"""The settings of `kafka2011 proxy`, and the form in which routes are written."""

from dataclasses import dataclass

from kafka2011.runtime.config import REQUIRED, address, boolean, setting, text, whole
from kafka2011.runtime.process_config import ProcessConfig
from kafka2011.services.proxy.faults import Faults, parse_faults

Address = tuple[str, int]


@dataclass(frozen=True)
class RouteConfig:
    """One listening address and the targets its connections are spread over."""

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
            where = address(listen)
            to = tuple(address(target) for target in targets.split("|"))
        except ValueError as error:
            raise ValueError(f"{part!r}: each address {error}") from None
        routes.append(RouteConfig(name or f"route-{len(routes)}", where, to))
    if not routes:
        raise ValueError("at least one route is needed")
    if len({route.name for route in routes}) != len(routes):
        raise ValueError("two routes have the same name")
    return tuple(routes)


@dataclass(frozen=True, kw_only=True)
class ProxyConfig(ProcessConfig):
    """One proxy process with any number of routes."""

    routes: tuple[RouteConfig, ...] = setting(
        "proxy.routes",
        REQUIRED,
        parse_routes,
        "[name=]listenhost:port>host:port|host:port,... one per listening address",
    )
    faults: Faults = setting(
        "proxy.faults", Faults(), parse_faults, "faults of every route at start, as JSON"
    )
    frames: bool = setting(
        "proxy.frames",
        True,
        boolean,
        "follow 0.7 frames from client to target, which dropping messages needs",
    )
    connect_timeout_ms: int = setting(
        "proxy.connect.timeout.ms", 2000, whole(1, 600_000), "per target, ms"
    )
    retry_min_ms: int = setting(
        "proxy.retry.min.ms",
        100,
        whole(1, 600_000),
        "first pause of a dead target, ms",
    )
    retry_max_ms: int = setting(
        "proxy.retry.max.ms", 3000, whole(1, 600_000), "longest pause, ms; each is twice the last"
    )
    zk_connect: str = setting(
        "zk.connect", "", text, "ZooKeeper to register this process in; empty: none"
    )
