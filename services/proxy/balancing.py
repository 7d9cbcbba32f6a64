"""The target of a route's next connection: round robin over those that are up. Pure.

The caller passes the time, connects, and reports the result. A target that refused is skipped until
a check reaches it again, after a pause; when all are down, a client's connection tries each once
more before it is reset.
"""

from dataclasses import dataclass

Address = tuple[str, int]


@dataclass
class Target:
    """One target's state. `retry_at_s` is valid only while it is down."""

    address: Address
    is_up: bool = True
    failures_in_row: int = 0
    retry_at_s: float = 0.0
    connections_total: int = 0
    failures_total: int = 0


class TargetRing:
    """Targets in turn. `retry_min_s`, `retry_max_s`: first and longest pause of a dead target."""

    def __init__(
        self, addresses: tuple[Address, ...], retry_min_s: float, retry_max_s: float
    ) -> None:
        assert addresses
        self.targets = [Target(address) for address in addresses]
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s
        self._next = 0

    def candidates(self) -> list[Target]:
        """The order in which a new connection tries the targets: live ones in turn, then the
        others, since a target may be up before its check."""
        turn = self._next
        self._next = (turn + 1) % len(self.targets)
        ordered = self.targets[turn:] + self.targets[:turn]
        return sorted(ordered, key=lambda target: not target.is_up)  # sorted keeps the turn

    def succeeded(self, target: Target, *, is_check: bool = False) -> None:
        target.is_up = True
        target.failures_in_row = 0
        if not is_check:
            target.connections_total += 1

    def failed(self, target: Target, now_s: float) -> None:
        target.is_up = False
        target.failures_total += 1
        pause_s = min(self._retry_min_s * 2 ** min(target.failures_in_row, 30), self._retry_max_s)
        target.failures_in_row += 1
        target.retry_at_s = now_s + pause_s
