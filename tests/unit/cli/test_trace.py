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


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        # The version is the one that wrote the row: `sql` names a later one in the same minute.
        (
            {"table": "readings", "version": 2, "file": "part-0.parquet", "row": 3},
            "readings, written by version 2: part-0.parquet row 3",
        ),
        ({"server": "web-1", "service": "web", "time_ms": 1000}, "web-1, web, 1970-01-01"),
        ({"server": "till-1", "service": "", "time_ms": 1000}, "till-1, 1970-01-01"),  # JSON
    ],
)
def test_where_a_message_is(
    capsys: pytest.CaptureFixture[str], place: dict[str, object], shown: str
) -> None:
    found = Trace("readings", "", 9)
    found.steps = [Step(WAREHOUSE, State.HERE, "there", (place,))]
    _print(found)
    assert f"  {shown}" in capsys.readouterr().out
