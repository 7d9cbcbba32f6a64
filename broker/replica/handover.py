"""A leader's planned stop: it waits until another replica may lead, or none is left that could."""

from collections.abc import Callable
from typing import Any

from kafka2011.broker.replication import events
from kafka2011.broker.replication.machine import Replica
from kafka2011.broker.replication.set_state import Directory


class Handover:
    """One planned stop: call `begin` once, and `look` after each step of the machine."""

    def __init__(
        self,
        loop: Any,
        machine: Replica,
        directory: Directory,
        feed: Callable[[events.Event], None],
    ) -> None:
        self._loop = loop
        self._machine = machine
        self._directory = directory
        self._feed = feed
        self._done: Callable[[], None] | None = None

    def begin(self, done: Callable[[], None]) -> None:
        """Stop leading without loss, if another can take over in time; then call `done`."""
        leader = self._machine.leads
        if leader is None or leader.known.isr == {self._directory}:
            done()
            return
        self._done = done
        wait_s = 2 * self._machine.context.timing.handover_ms / 1000
        self._loop.call_later(wait_s, self._end)
        self._feed(events.HandOver())

    def look(self) -> None:
        """Let the stop go on if the state says that another may lead, or no other is left."""
        if self._done is None:
            return
        context, leader = self._machine.context, self._machine.leads
        if leader is not None:
            others = leader.known.isr & context.live - {self._directory}
            if not leader.members and not others:
                self._end()
        elif context.state is None or context.state.leader != self._directory:
            self._end()

    def _end(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()
