"""Mirrors that would copy in a cycle are refused."""

import threading
from typing import Any, cast

import pytest

from kafka2011.coordination import paths
from kafka2011.coordination.registry import Registry
from kafka2011.services.mirror_maker.cycle_check import MirrorCycle, refuse_cycles
from tests.support.memory_deployment import Deployment


def test_of_two_that_start_in_opposite_directions_at_once_none_goes_on() -> None:
    """Both looked before either had entered its source, and messages went in a circle."""
    one, two = (Deployment().admin for _ in range(2))
    both = threading.Barrier(2)
    found: list[str] = []

    class Slow:
        """Its first look at what feeds a cluster waits for that of the other mirror."""

        def __init__(self, registry: Registry) -> None:
            self._registry = registry
            self._looks = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._registry, name)

        def children(self, path: str) -> list[str]:
            children = self._registry.children(path)
            self._looks += 1
            if self._looks == 1:
                both.wait(60)
            return children

    def start(source: Registry, target: Registry) -> None:
        try:
            refuse_cycles(cast("Registry", Slow(source)), target, "g")
            found.append("accepted")
        except MirrorCycle:
            found.append("refused")

    threads = [threading.Thread(target=start, args=pair) for pair in ((one, two), (two, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) in (["accepted", "refused"], ["refused", "refused"])
    refused_both = "accepted" not in found
    feeds = [registry.children(paths.UPSTREAM) for registry in (one, two)]
    assert sum(map(len, feeds)) == (0 if refused_both else 1)


def test_a_ring_of_mirrors_is_refused_at_its_last_link() -> None:
    one, two, three = (Deployment().admin for _ in range(3))
    with pytest.raises(MirrorCycle, match="the same cluster"):
        refuse_cycles(one, one, "g")
    refuse_cycles(one, two, "g")
    refuse_cycles(one, two, "g")  # a second member, or a second start
    refuse_cycles(two, three, "g")
    for last in (two, three):
        with pytest.raises(MirrorCycle, match="in a circle"):
            refuse_cycles(last, one, "g")
