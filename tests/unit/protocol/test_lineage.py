"""What a reader finds in the log after elections: all that it read, or from where on not."""

import pytest

from kafka2011.protocol.lineage import (
    Lineage,
    OlderLeader,
    Parted,
    PartedTooEarly,
    history,
    parted,
)

READ: Lineage = ((1, 0), (3, 50), (5, 80))


@pytest.mark.parametrize(
    ("offset", "log", "expected"),
    [
        pytest.param(100, READ, None, id="the same leader"),
        pytest.param(100, (*READ, (6, 100)), None, id="a clean takeover"),
        pytest.param(100, (*READ, (6, 120)), None, id="it had more"),
        pytest.param(80, (*READ[:2], (6, 80)), None, id="what was lost had not been read"),
        pytest.param(100, (*READ, (6, 90)), Parted(90, 100, 6), id="cut in the last epoch"),
        pytest.param(100, ((1, 0), (6, 50)), Parted(50, 100, 6), id="away for two leaderships"),
        pytest.param(100, ((1, 0), (6, 60)), Parted(50, 100, 6), id="with an unconfirmed tail"),
        pytest.param(100, ((6, 0),), Parted(0, 100, 6), id="with an empty disk"),
        pytest.param(100, (), None, id="no replica set"),
        pytest.param(0, ((1, 0),), None, id="made anew, and the reader reset"),
    ],
)
def test_what_was_read_is_in_the_log_or_the_range_that_is_not_is_named(
    offset: int, log: Lineage, expected: Parted | None
) -> None:
    assert parted(READ, offset, log) == expected
    assert parted((), offset, log) is None


@pytest.mark.parametrize(
    ("offset", "log", "expected"),
    [
        pytest.param(100, READ[1:], None, id="the oldest epoch is forgotten"),
        pytest.param(100, (READ[2], (6, 100)), None, id="but for the last"),
        pytest.param(100, (READ[1], (6, 90)), Parted(80, 100, 6), id="cut in a later one"),
        pytest.param(100, ((6, 70),), Parted(70, 100, 6), id="as far as is known"),
        pytest.param(100, ((6, 120),), None, id="all that was read is gone from the log"),
        pytest.param(100, ((0, 0), (6, 90)), Parted(0, 100, 6), id="a backup, elected by hand"),
    ],
)
def test_of_what_a_log_has_let_go_its_lineage_may_say_nothing(
    offset: int, log: Lineage, expected: Parted | None
) -> None:
    assert parted(READ, offset, log) == expected


def test_an_older_leader_and_an_early_parting_are_errors() -> None:
    with pytest.raises(OlderLeader):
        parted(READ, 100, READ[:2])
    assert parted(READ, 60, READ[:2]) is None, "epoch 5 was not read from yet"
    long: Lineage = tuple((epoch, 10 * epoch) for epoch in range(1, 9))
    newest = history(long)
    assert newest == long[-4:]
    assert parted(newest, 90, (*long, (9, 90))) is None
    assert parted(newest, 90, (*long[:6], (9, 65))) == Parted(65, 90, 9)
    with pytest.raises(PartedTooEarly):
        parted(newest, 90, (*long[:3], (9, 35)))
