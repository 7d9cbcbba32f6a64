"""The proxy as an object that any thread may use: routes on an event loop in a thread of its own.

    with Proxy(config) as proxy:
        host, port = proxy.address("balancer")
        proxy.change("balancer", {"delay_ms": 100})

Tests use it in their own process; `app.py` makes `kafka2011 proxy` of it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from kafka2011.runtime.workers import Worker
from kafka2011.services.proxy.config import ProxyConfig
from kafka2011.services.proxy.faults import changed
from kafka2011.services.proxy.route import Route

CALL_TIMEOUT_S = 10.0

Result = TypeVar("Result")


class UnknownRoute(ValueError):
    """No route has that name."""


class Proxy:
    """All routes of one configuration. Every method blocks until the loop has done it."""

    def __init__(
        self,
        config: ProxyConfig,
        on_failure: Callable[[BaseException], object] = lambda _error: None,
    ) -> None:
        """`on_failure` is called when a bug has ended the loop: nothing is relayed any more."""
        self._loop = uvloop.new_event_loop()
        self._worker = Worker(self._run, "proxy", restarts=False, on_failure=on_failure)
        self._changing = asyncio.Lock()  # each change builds on the one before
        self.routes = {route.name: Route(route, config, self._loop) for route in config.routes}

    def start(self) -> None:
        """Listen on every route. Raises CannotListen when an address is taken; nothing is left."""
        self._worker.start()
        try:
            for route in self.routes.values():
                self._call(route.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all connections and give the addresses back. Idempotent."""
        if self._loop.is_closed():
            return
        if self._worker.is_alive():
            self._call(self._stop_routes())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._worker.join()
        self._loop.close()

    close = stop

    def address(self, route: str) -> tuple[str, int]:
        """Where the route listens (the real port when 0 was asked for)."""
        return self._route(route).listen

    def change(self, route: str | None, change: object) -> dict[str, Any]:
        """Apply a change of faults (see `faults.py`) to one route or (None) to all.

        Returns the status afterwards. Raises UnknownRoute, or ValueError when the change cannot be
        understood; then nothing was changed.
        """
        routes = list(self.routes.values()) if route is None else [self._route(route)]

        async def apply() -> None:
            async with self._changing:
                for one, faults in [(one, changed(one.faults, change)) for one in routes]:
                    await one.change(faults)

        self._call(apply())
        return self.status()

    def reset_connections(self, route: str | None = None) -> None:
        """RST every open connection of one route or of all; new ones are accepted."""
        routes = list(self.routes.values()) if route is None else [self._route(route)]

        def reset() -> None:
            for one in routes:
                one.reset_connections()

        self._on_loop(reset)

    def status(self) -> dict[str, Any]:
        """Route name -> listen address, targets, faults and counters."""
        return self._on_loop(lambda: {name: one.status() for name, one in self.routes.items()})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _route(self, name: str) -> Route:
        try:
            return self.routes[name]
        except KeyError:
            raise UnknownRoute(f"no route {name!r}; there are: {', '.join(self.routes)}") from None

    async def _stop_routes(self) -> None:
        await asyncio.gather(*(route.stop() for route in self.routes.values()))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    def _on_loop(self, function: Callable[[], Result]) -> Result:
        async def call() -> Result:
            return function()

        return self._call(call())
