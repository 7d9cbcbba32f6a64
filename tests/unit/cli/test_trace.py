"""What `kafka2011 trace` prints of an answer."""

import pytest

from kafka2011.cli.trace import _print
from kafka2011.services.trace.steps import LIVE, OFFLINE, WAREHOUSE, State, Step, Trace


def test_what_others_wrote_carries_no_control_characters_to_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A reason is the registry's or a mirror's, and a topic's name is a node's in ZooKeeper."""
    found = Trace("clicks\x1b[2J", "", 9)
    place = {"partition": "1-0", "offset": 7}
    found.steps = [
        Step(LIVE, State.HERE, "in the log", (place,)),
        Step(OFFLINE, State.REFUSED, "the mirror left it out: \x1b]0;title\x07\nsecond line"),
    ]
    found.others = [{"tier": LIVE, "topic": "a\x9bb", **place}]
    _print(found)
    out = capsys.readouterr().out
    assert not set(out) & {"\x1b", "\x07", "\x9b"}
    *_, verdict, other = out.splitlines()
    assert verdict.startswith(r"clicks\x1b[2J without a guid, 9 bytes: ")
    assert verdict.endswith(r"\x1b]0;title\x07\x0asecond line)")
    assert other == r"fits too: live a\x9bb 1-0 at 7"


def test_the_version_of_a_row_is_the_one_that_wrote_it(capsys: pytest.CaptureFixture[str]) -> None:
    """*readings version 2* stood there while `sql` named version 8 in the same minute."""
    found = Trace("readings", "", 9)
    place = {"table": "readings", "version": 2, "file": "part-0.parquet", "row": 3}
    found.steps = [Step(WAREHOUSE, State.HERE, "in the table", (place,))]
    _print(found)
    assert "readings, written by version 2: part-0.parquet row 3" in capsys.readouterr().out
