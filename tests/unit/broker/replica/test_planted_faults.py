"""Every fault that is planted in the executor, the link and the outbox is found by its claim."""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.planted import PLANTED, Planted
from tests.unit.broker.replica import test_link, test_outbox, test_replica

WALKS = 300
PATIENCE_S = 2.0  # a claim waits in vain for what a fault leaves out
Claim = Callable[[Path], None]


def of_the_outbox(name: str) -> Claim | None:
    if name == "nothing_is_left_out_and_no_mark_overtakes":
        return lambda _: [test_outbox.check(acts) for acts in map(random_acts, range(WALKS))]  # type: ignore[return-value]
    found = getattr(test_outbox, f"test_{name}", None)
    return (lambda _: found()) if found else None


def random_acts(seed: int) -> list[object]:
    rng = random.Random(seed)
    log = (rng.choice(test_outbox.LOGS), rng.randint(1, 40))
    return [rng.choice((log, "mark", "frame", "send")) for _ in range(rng.randint(1, 60))]


def of_the_link(name: str, monkeypatch: pytest.MonkeyPatch) -> Claim | None:
    found = getattr(test_link, f"test_{name}", None)
    if found is None:
        return None

    def claim(path: Path) -> None:
        with contextlib.closing(test_link.Pair(path)) as pair:
            found(pair, monkeypatch) if found.__code__.co_argcount > 1 else found(pair)

    return claim


def of_the_executor(name: str) -> Claim | None:
    found = getattr(test_replica, f"claim_{name}", None)
    return (lambda _: found(test_replica.Work())) if found else None


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_fault_is_found(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = planted.claim
    claim = of_the_outbox(name) or of_the_link(name, monkeypatch) or of_the_executor(name)
    assert claim is not None, f"no claim {name}"
    claim(tmp_path)
    monkeypatch.setattr(planted.part, planted.method, planted.fault)
    monkeypatch.setattr(test_link, "PATIENCE_S", PATIENCE_S)
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        claim(tmp_path)
