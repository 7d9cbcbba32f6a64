"""Mirrors that would copy in a cycle are refused."""

import pytest

from kafka2011.services.mirror_maker.cycle_check import MirrorCycle, refuse_cycles
from tests.support.memory_zookeeper import InMemoryZooKeeper


def test_a_ring_of_mirrors_is_refused_at_its_last_link() -> None:
    one, two, three = (InMemoryZooKeeper().client() for _ in range(3))
    for registry in (one, two, three):
        registry.start()
    with pytest.raises(MirrorCycle, match="the same cluster"):
        refuse_cycles(one, one, "g")
    refuse_cycles(one, two, "g")
    refuse_cycles(one, two, "g")  # a second member, or a second start
    refuse_cycles(two, three, "g")
    with pytest.raises(MirrorCycle, match="in a circle"):
        refuse_cycles(two, one, "g")
    with pytest.raises(MirrorCycle, match="in a circle"):
        refuse_cycles(three, one, "g")
    for registry in (one, two, three):
        registry.close()
