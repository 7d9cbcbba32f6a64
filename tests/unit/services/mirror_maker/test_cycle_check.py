"""Mirrors that would copy in a cycle are refused."""

import pytest

from kafka2011.services.mirror_maker.cycle_check import MirrorCycle, refuse_cycles
from tests.support.memory_deployment import Deployment


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
