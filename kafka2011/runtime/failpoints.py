"""Named places where a test can make a process exit, sleep, wait or raise.

`failpoint("after_append_before_watermark")` does nothing unless KAFKA2011_FAILPOINTS named it when
the process started: `name=exit:9;other=sleep:250;third=raise;fourth=hold:/path`. With `hold` it
waits there as long as that file exists. `git grep "failpoint("` lists the places.
"""

import os
import time


class FailpointError(RuntimeError):
    """Raised by a failpoint whose action is `raise`."""


HOLD_POLL_S = 0.01


def _parse(text: str) -> dict[str, tuple[str, str]]:
    actions = {}
    for part in filter(None, text.split(";")):
        name, _, action = part.partition("=")
        verb, _, argument = action.partition(":")
        if verb not in ("exit", "sleep", "raise", "hold"):
            known = "name=exit|sleep|raise[:n] or name=hold:file"
            raise ValueError(f"KAFKA2011_FAILPOINTS: {part!r} must be {known}")
        actions[name] = (verb, argument or "1")
    return actions


_actions = _parse(os.environ.get("KAFKA2011_FAILPOINTS", ""))


def failpoint(name: str) -> None:
    """Do what KAFKA2011_FAILPOINTS says for this place; else return at once."""
    if not _actions:
        return
    action = _actions.get(name)
    if action is None:
        return
    verb, argument = action
    if verb == "exit":
        os._exit(int(argument))
    if verb == "sleep":
        time.sleep(int(argument) / 1000)
        return
    if verb == "hold":
        while os.path.exists(argument):
            time.sleep(HOLD_POLL_S)
        return
    raise FailpointError(name)
