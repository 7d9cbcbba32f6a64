"""A batch on its way to a target that hangs up."""

import contextlib
import socket
import threading

import pytest

from kafka2011.consumer.broker_loop import Backoff
from kafka2011.consumer.chunk import Chunk, TopicPartition
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.producer import connection, offset_polling
from kafka2011.producer.connection import BrokerConnection
from kafka2011.protocol.message_set import encode
from kafka2011.services.mirror_maker.config import MirrorConfig
from kafka2011.services.mirror_maker.copy_progress import PartitionCopy
from kafka2011.services.mirror_maker.refusals import Refusals
from kafka2011.services.mirror_maker.target_writer import TargetWriter
from tests.support.scripted_server import ScriptedBroker
from tests.support.waiting import wait_until
from tests.unit.services.mirror_maker.conftest import SETTINGS


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
    wake = threading.Condition()
    copy = PartitionCopy(TopicPartition("t", 1, 0), "t", 0, 1 << 20, 1 << 20, Backoff(0.001, 0.01))
    copy.target = BrokerPartition(11, 0)
    for number in range(2):
        data = encode([b"%d" % number])
        start = number * len(data)
        copy.fetched(copy.epoch, Chunk("t", 1, 0, start, memoryview(data), start + len(data)), 1)
    with ScriptedBroker() as target, contextlib.ExitStack() as stack:
        target.refused = {"t"}
        writer = TargetWriter(
            11,
            MirrorConfig(**{**SETTINGS, "flush_method": flush_method}),
            wake,
            address_of=lambda _broker_id: target.address,
            may_send=lambda: True,
            refusals=Refusals.__new__(Refusals),  # of a set alone, which there is none
        )
        stack.callback(writer.stop)
        with wake:
            writer.copies.append(copy)
            wake.notify_all()
        wait_until(lambda: copy.rewinds, "the loss is noticed")
        assert target.log("t") == b""
