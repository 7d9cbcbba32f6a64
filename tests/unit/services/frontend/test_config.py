from typing import Any

import pytest

from kafka2011.events.forms import FORMS_2011
from kafka2011.services.frontend.config import FrontendConfig

BALANCER = ((0, ("balancer", 9092)),)


def test_keys_need_to_know_the_brokers_and_lines_of_a_log_have_none() -> None:
    plain = {"broker_list": BALANCER, "event_forms": FORMS_2011}
    with pytest.raises(ValueError, match=r"frontend\.keyed=true needs live\.zk\.connect"):
        FrontendConfig(**plain, is_keyed=True)
    assert FrontendConfig(**plain, is_keyed=True, live_zk_connect="zk:2181").places_by_key
    log = {"source": "access-log", "input_path": "access.log"}
    assert not FrontendConfig(**plain, is_keyed=True, **log).places_by_key
    assert not FrontendConfig(**plain, live_zk_connect="zk:2181").places_by_key


@pytest.mark.parametrize(
    ("settings", "gather_ms"),
    [
        ({}, 50),
        ({"batch_ms": 7, "rate": 3}, 7),
        ({"source": "access-log", "input_path": "access.log", "rate": 3}, 50),
        ({"source": "access-log", "input_path": "access.log"}, 0),
    ],
)
def test_only_events_that_come_at_a_rate_are_gathered(
    settings: dict[str, Any], gather_ms: int
) -> None:
    assert (
        FrontendConfig(broker_list=BALANCER, event_forms=FORMS_2011, **settings).gather_ms
        == gather_ms
    )


@pytest.mark.parametrize(("catch_up_ms", "pause_ms_max"), [(-1, -1), (0, 200), (10_000, 10_200)])
def test_pauses_between_batches_are_no_delay(catch_up_ms: int, pause_ms_max: int) -> None:
    found = FrontendConfig(
        broker_list=BALANCER, event_forms=FORMS_2011, batch_ms=50, catch_up_ms=catch_up_ms
    )
    assert found.pause_ms_max == pause_ms_max
