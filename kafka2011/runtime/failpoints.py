"""Named places where a test can make a process exit, sleep or raise.

`failpoint("after_append_before_watermark")` does nothing unless KAFKA2011_FAILPOINTS named it when
the process started: `name=exit:9;other=sleep:250;third=raise`. `git grep "failpoint("` lists the
places.
"""

import os
import time


class FailpointError(RuntimeError):
    """Raised by a failpoint whose action is `raise`."""


def _parse(text: str) -> dict[str, tuple[str, int]]:
    actions = {}
    for part in filter(None, text.split(";")):
        name, _, action = part.partition("=")
        verb, _, number = action.partition(":")
        if verb not in ("exit", "sleep", "raise"):
            raise ValueError(f"KAFKA2011_FAILPOINTS: {part!r} must be name=exit|sleep|raise[:n]")
        actions[name] = (verb, int(number or 1))
    return actions


_actions = _parse(os.environ.get("KAFKA2011_FAILPOINTS", ""))


def failpoint(name: str) -> None:
    """Exit, sleep or raise as KAFKA2011_FAILPOINTS says for this place; else return at once."""
    if not _actions:
        return
    action = _actions.get(name)
    if action is None:
        return
    verb, number = action
    if verb == "exit":
        os._exit(number)
    if verb == "sleep":
        time.sleep(number / 1000)
        return
    raise FailpointError(name)
