"""What carries the machine's effects out: in order, events after them, nothing reported that is not
so. The machine is a script here, and the disk, the links and the clients write down what is done.
"""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafka2011.broker.core.errors import StorageFull
from kafka2011.broker.core.replica_storage import CutResult
from kafka2011.broker.log.errors import CopyMisplaced
from kafka2011.broker.replica.frames import Chunk
from kafka2011.broker.replica.replica import Identity, Limits, RunningReplica
from kafka2011.broker.replication import effects, events
from kafka2011.broker.replication.frames import Ack
from kafka2011.protocol.errors import RemoteProtocolError
from tests.support.raw_requests import entry

LOG = SimpleNamespace(name="t-0", log_end=0, is_held=False, high_watermark=0)


class Script:
    """A machine that wants what is written in `wants`, by the kind of event."""

    def __init__(self, did: list[Any]) -> None:
        self.wants: dict[type, list[Any]] = {}
        self.leads: Any = None
        self.unconfirmed_bytes = 0
        self.context = SimpleNamespace(
            copies={}, state=None, live=frozenset(), accepted=7, failed=False, no_room_until_ms=0
        )
        self._did = did

    def step(self, _now_ms: int, event: Any) -> list[Any]:
        self._did.append(event)
        return self.wants.pop(type(event), [])


class Writer:
    """Notes each call as (name, arguments); `fails` has what a call raises."""

    def __init__(self, did: list[Any], name: str) -> None:
        self._did, self._name = did, name
        self.fails: dict[str, Exception] = {}
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **_: Any) -> Any:
            self._did.append(f"{self._name}.{name}")
            self.calls.append(arguments)
            if name in self.fails:
                raise self.fails[name]

        return call


class Storage(Writer):
    def log(self, name: str) -> Any:
        return LOG if name == LOG.name else None

    def copies(self) -> dict[str, Any]:
        return {}


class Port(Writer):
    def get(self, number: int) -> Any:
        return Writer(self._did, f"link {number}")


class Loop:
    """`run` has what was to be called soon, and later, called."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], Any]] = deque()
        self.pauses_s: list[float] = []

    def call_soon(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.waiting.append(lambda: call(*arguments))

    def call_later(self, pause_s: float, call: Callable[..., Any], *arguments: Any) -> Any:
        self.pauses_s.append(pause_s)
        self.call_soon(call, *arguments)
        return SimpleNamespace(cancel=lambda: None)

    def run(self) -> None:
        for _ in range(len(self.waiting)):
            self.waiting.popleft()()


class Work:
    def __init__(self) -> None:
        self.did: list[Any] = []
        self.loop = Loop()
        self.script = Script(self.did)
        self.storage = Storage(self.did, "disk")
        self.replica = RunningReplica(
            Identity("cluster", 1, "a", "A"),
            self.script,  # type: ignore[arg-type]
            storage=self.storage,  # type: ignore[arg-type]
            disk=Writer(self.did, "scheduler"),  # type: ignore[arg-type]
            loop=self.loop,
            poller=None,  # type: ignore[arg-type]
            clients=Writer(self.did, "clients"),  # type: ignore[arg-type]
            entry_bytes_max=1000,
            limits=Limits(0, 1000),
            refuse_appends=lambda _: None,
            failed=lambda reason, of_disk: self.did.append(("ended", reason, of_disk)),
            moved=lambda: None,
        )
        self.replica.port = Port(self.did, "port")  # type: ignore[assignment]
        self.replica.requests = Writer(self.did, "registry")  # type: ignore[assignment]

    def feed(self, event: Any, *wanted: Any) -> None:
        """Hand in an event on which the machine wants these effects."""
        self.script.wants[type(event)] = list(wanted)
        self.replica.feed(event)

    def copies_on(self, link: int) -> None:
        self.replica._addresses["B"] = SimpleNamespace()  # type: ignore[assignment]
        self.feed(events.Tick(), effects.Connect(link, "B"))


CUT = effects.CutLogs({})
JOURNAL = effects.Journal(3, 7, {}, True)


def claim_effects_are_carried_out_in_order(work: Work) -> None:
    floors = SimpleNamespace(epoch=7, floors={"t-0": 5}, known=SimpleNamespace(isr={"A"}))
    work.script.leads = floors
    wanted = (effects.Send(1, Ack(1, {})), JOURNAL, effects.Confirm(7, "t-0", 5), effects.Close(1))
    work.feed(events.Tick(), *wanted, effects.OpenClients(), effects.CloseClients())
    assert work.did == [
        events.Tick(), "link 1.send", "disk.write_journal", "disk.set_watermark", "port.finish",
        "disk.set_floor", "clients.open", "clients.hang_up", "disk.stop_leading",
    ]  # fmt: skip


def claim_an_event_waits_for_the_effects_of_the_one_before(work: Work) -> None:
    work.storage.cut_logs = lambda _steps, done: done(CutResult(None))  # type: ignore[method-assign]
    work.feed(events.Tick(), CUT, effects.Send(1, Ack(1, {})))
    assert work.did == [events.Tick(), "link 1.send", events.LogsCut()]


def claim_a_journal_is_reported_when_it_is_durable(work: Work) -> None:
    work.feed(events.Tick(), JOURNAL)
    assert work.did == [events.Tick(), "disk.write_journal"]
    written = work.storage.calls[-1][-1]
    written(None)
    assert work.did[2:] == [events.Journalled(3)]


def claim_a_journal_that_failed_ends_the_process(work: Work) -> None:
    work.feed(events.Tick(), JOURNAL)
    work.storage.calls[-1][-1](OSError(5, "no disk"))
    ended = ("ended", "its journal cannot be written: [Errno 5] no disk", True)
    assert work.did[2:] == ["port.close", ended]
    work.replica.feed(events.LookAgain())
    assert work.did[4:] == []


def claim_a_cut_that_failed_is_made_again(work: Work) -> None:
    work.feed(events.Tick(), CUT)
    for count in range(1, 9):
        work.storage.calls[-1][-1](CutResult(OSError(28, "full")))
        assert work.did == [events.Tick(), *["disk.cut_logs"] * count]
        work.loop.run()
    assert work.loop.pauses_s == [1, 2, 4, 8, 16, 30, 30, 30]
    work.storage.calls[-1][-1](CutResult(None))
    assert work.did[-2:] == ["disk.cut_logs", events.LogsCut()]


def claim_a_chunk_is_taken_at_the_end_of_its_log_alone(work: Work) -> None:
    work.copies_on(-1)
    for chunk in (Chunk("t-0", 5, 0, 0, entry(b"x")), Chunk("u-0", 0, 0, 0, entry(b"x"))):
        with pytest.raises(RemoteProtocolError):
            work.replica.frame(-1, chunk)
    work.did.clear()
    work.replica.frame(-1, Chunk("t-0", 0, 0, 0, entry(b"x")))
    assert [type(one) for one in work.did] == [events.Received]


def claim_after_its_close_nothing_of_a_link_is_copied(work: Work) -> None:
    work.copies_on(-1)
    work.feed(events.Tick(), effects.Close(-1))
    with pytest.raises(RemoteProtocolError):
        work.replica.frame(-1, Chunk("t-0", 0, 0, 0, entry(b"x")))


def fails_to_copy(work: Work, error: Exception) -> None:
    work.storage.fails["append_copied"] = error
    work.copies_on(-1)
    work.script.wants[events.Received] = [effects.Write("t-0", 0, len(entry(b"x")))]
    work.replica.frame(-1, Chunk("t-0", 0, 0, 0, entry(b"x")))
    work.loop.run()
    assert work.did[-1] == events.NoRoom("t-0", 0)


def claim_what_found_no_room_is_reported_as_such(work: Work) -> None:
    fails_to_copy(work, StorageFull("full"))


def claim_an_effect_that_fails_ends_the_process(work: Work) -> None:
    work.storage.fails["set_watermark"] = RuntimeError("a bug")
    work.feed(events.Tick(), effects.Confirm(7, "t-0", 5), effects.Send(1, Ack(1, {})))
    ended = ("ended", "an internal error: RuntimeError: a bug", False)
    assert work.did == [events.Tick(), "disk.set_watermark", "port.close", ended]


def claim_a_client_port_that_is_taken_ends_the_process(work: Work) -> None:
    work.script.leads = SimpleNamespace(epoch=7, floors={}, known=SimpleNamespace(isr={"A"}))
    work.replica._clients.fails["open"] = OSError(98, "in use")  # type: ignore[attr-defined]
    work.feed(events.Tick(), effects.OpenClients())
    ended = ("ended", "its client port cannot be opened: [Errno 98] in use", False)
    assert work.did == [events.Tick(), "clients.open", "port.close", ended]


def claim_a_copy_that_does_not_fit_is_as_if_it_had_found_no_room(work: Work) -> None:
    """The link is dropped, and the replica joins again after a while; its disk is good."""
    fails_to_copy(work, CopyMisplaced("no segment here begins at 5"))


def claim_what_a_follower_knows_as_confirmed_is_kept(work: Work) -> None:
    work.feed(events.Tick(), effects.Known("t-0", 40))
    assert work.did[-1] == "disk.set_watermark"
    assert work.storage.calls[-1] == (LOG, 40)


def claim_a_replica_that_is_to_stop_answers_no_candidate(work: Work) -> None:
    work.script.canvassed = lambda: "all"  # type: ignore[attr-defined]
    assert work.replica.canvassed() == "all"
    work.replica.hand_over(lambda: None)
    assert work.replica.canvassed() is None


CLAIMS = [found for name, found in sorted(globals().items()) if name.startswith("claim_")]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__.removeprefix("claim_"))
def test_that(claim: Callable[[Work], None]) -> None:
    claim(Work())
