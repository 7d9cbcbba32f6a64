"""The group's verdicts as a member gives them."""

from types import SimpleNamespace
from typing import Any

from kafka2011.services.online_consumer.validating import Validating


def test_before_the_first_look_nothing_is_said_of_the_group() -> None:
    """It was *not audited*, which is said of topics that no producer reports."""
    connector: Any = SimpleNamespace(config=SimpleNamespace(group_id="g", audit_enable=True))
    validating = Validating(connector)
    assert validating.status() is None
    assert list(validating.metrics()) == []
