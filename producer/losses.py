"""What a flush could not confirm: summed by broker and topic, and kept for the next flush. Pure."""

from collections.abc import Iterable

from kafka2011.producer.errors import Unconfirmed


class HeldLosses:
    """Losses found by flushes for the counts, for the application's next flush to name."""

    def __init__(self) -> None:
        self._lost: list[Unconfirmed] = []
        self._reason = ""

    def hold(self, lost: list[Unconfirmed], reason: str) -> None:
        """Keep these as well; the last reason stays."""
        if lost:
            self._lost, self._reason = self.taken_with(lost, reason)

    def taken_with(self, lost: list[Unconfirmed], reason: str) -> tuple[list[Unconfirmed], str]:
        """What was held plus `lost`, one item per broker and topic; then nothing is held."""
        if not self._lost:
            return lost, reason
        together, reason = summed([*self._lost, *lost]), reason or self._reason
        self._lost, self._reason = [], ""
        return together, reason


def summed(parts: Iterable[Unconfirmed]) -> list[Unconfirmed]:
    """The sums: one item per broker and topic."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for part in parts:
        sends, size = sums.get((part.broker, part.topic), (0, 0))
        sums[part.broker, part.topic] = sends + part.sends, size + part.set_bytes
    return [Unconfirmed(*name, *numbers) for name, numbers in sums.items()]
