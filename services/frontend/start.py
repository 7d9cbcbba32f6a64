"""Decides where a frontend starts: at the journal's position, or at a source's start. Pure.

A journal outlives its process. It is continued only for the same source under the same server name
and window width; otherwise its counts are first published under the old name.
"""

from enum import Enum, auto
from typing import Any

from kafka2011.producer.counting.journal import JournalState


class Start(Enum):
    """How to start with an existing journal."""

    NEW = auto()  # begin a run at the source's start
    CONTINUE = auto()  # after the journalled position
    NOTHING_LEFT = auto()  # the same finite source was sent to its end before


def must_adopt(state: JournalState, server: str, window_ms: int) -> bool:
    """Whether the counts must start over under another name or width, once all are published."""
    return (state.server, state.window_ms) != (server, window_ms)


def start_of(state: JournalState, descriptor: Any, can_continue: bool) -> Start:
    """How to start; `can_continue`: the source still holds what was read of it."""
    if not state.run or state.source != descriptor or not can_continue:
        return Start.NEW
    return Start.NOTHING_LEFT if state.is_finished else Start.CONTINUE
