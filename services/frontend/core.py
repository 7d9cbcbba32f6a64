"""Decides where a frontend goes on: with what the journal says, or at a source's start. Pure.

A journal outlives its process. What it holds is continued only for the same source under the same
server name and window width; anything else is first published under its old name.
"""

from enum import Enum, auto
from typing import Any

from kafka2011.services.frontend.journal import JournalState


class Start(Enum):
    """What to do with a journal that was found."""

    NEW = auto()  # begin a run at the source's start
    CONTINUE = auto()  # behind the journalled position
    NOTHING_LEFT = auto()  # the same finite source was sent to its end before


def must_adopt(state: JournalState, server: str, window_ms: int) -> bool:
    """Whether the counts must start anew under another name or width, once all is published."""
    return (state.server, state.window_ms) != (server, window_ms)


def start_of(state: JournalState, descriptor: Any, can_continue: bool) -> Start:
    """`can_continue`: the source still has what the journalled position stands behind."""
    if not state.run or state.source != descriptor or not can_continue:
        return Start.NEW
    return Start.NOTHING_LEFT if state.is_finished else Start.CONTINUE
