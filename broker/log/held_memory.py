"""The memory of the sets that logs hold until they have a segment for them."""

from collections.abc import Callable


class HeldMemory:
    """One for all logs of a directory. `changed` is called, in the middle of a log's work, with by
    how many bytes it is more, or less; it calls nothing back."""

    def __init__(self) -> None:
        self.changed: Callable[[int], None] = lambda _: None
