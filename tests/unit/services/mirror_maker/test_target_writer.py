"""A batch on its way to a target that hangs up, or is away."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka2011.consumer.broker_loop import Backoff
from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.producer import BrokerUnavailable, connection, offset_polling
from kafka2011.producer.connection import BrokerConnection
from kafka2011.protocol.message_set import encode
from kafka2011.runtime.shared_settings import Address
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy
from kafka2011.services.mirror_maker.refusals import Refusals
from kafka2011.services.mirror_maker.target_writer import TargetWriter
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until
from tests.unit.services.mirror_maker.conftest import SETTINGS


@contextlib.contextmanager
def writing(
    copies: list[PartitionCopy], address_of: Callable[[int], Address], **settings: Any
) -> Iterator[None]:
    wake = threading.Condition()
    writer = TargetWriter(
        11,
        MirrorConfig(**{**SETTINGS, **settings}),
        wake,
        address_of=address_of,
        may_send=lambda: True,
        refusals=Refusals.__new__(Refusals),  # of a set alone, which there is none
    )
    try:
        with wake:
            writer.copies += copies
            wake.notify_all()
        yield
    finally:
        writer.stop()


def copy_of(partition: int, set_count: int) -> PartitionCopy:
    """A copy with sets of one message that wait to be sent."""
    name = TopicPartition("t", 1, partition)
    copy = PartitionCopy(name, "t", 0, 1 << 20, 1 << 20, Backoff(0.001, 0.01))
    copy.target = BrokerPartition(11, partition)
    for number in range(set_count):
        data = encode([b"%d" % number])
        start = number * len(data)
        copy.fetched(copy.epoch, Chunk(*name, start, memoryview(data), start + len(data)), 1)
    return copy


def test_while_a_target_is_away_no_copy_that_has_something_for_it_is_called_copying() -> None:
    """Of two that are sent alone the one that was confirmed last had no turn, and was."""
    alone = [copy_of(0, 1), copy_of(1, 1)]
    for at_s, copy in enumerate(alone):
        copy.is_suspect, copy.confirmed_at_s = True, at_s
    quiet = copy_of(2, 0)

    def away(_broker_id: int) -> Address:
        raise BrokerUnavailable("broker 11 is not registered")

    with writing([*alone, quiet], away):
        wait_until(lambda: all(copy.trouble for copy in alone), "both say so")
        assert [copy.state for copy in (*alone, quiet)] == ["waiting", "waiting", "copying"]


@pytest.mark.parametrize("flush_method", ["barrier", "offsets"])
def test_no_set_is_stored_in_front_of_one_that_was_lost_on_the_connection_before(
    monkeypatch: pytest.MonkeyPatch, flush_method: str
) -> None:
    """A pause of 50 ms between two sets of a batch was enough for a new connection in between."""
    for module in (connection, offset_polling):
        monkeypatch.setattr(module, "IDLE_CHECK_NS", -1)
    is_closed = BrokerConnection._is_closed_by_peer

    def is_closed_in_time(sock: socket.socket) -> bool:
        if target.parts() and target.refused:
            wait_until(lambda: is_closed(sock), "the target has hung up")
            target.refused = set()
        return is_closed(sock)

    monkeypatch.setattr(BrokerConnection, "_is_closed_by_peer", staticmethod(is_closed_in_time))
    copy = copy_of(0, 2)
    with ScriptedBroker() as target:
        target.refused = {"t"}
        with writing([copy], lambda _broker_id: target.address, flush_method=flush_method):
            wait_until(lambda: copy.rewinds, "the loss is noticed")
        assert target.log("t") == b""
