"""Faults in what carries the machine's effects out: the executor, the link, what waits on it.

The walks of the simulation break the machine's rules (`mutants`); these parts they only model.
So each of these faults is planted in the parts themselves, and must be found by the claim that it
names (tests/unit/broker/replica/test_planted_faults.py).
"""

from dataclasses import dataclass
from typing import Any

from kafka2011.broker.core.replica_storage import CutResult
from kafka2011.broker.replica.frames import Chunk
from kafka2011.broker.replica.link import Link
from kafka2011.broker.replica.outbox import Outbox, Range
from kafka2011.broker.replica.replica import RunningReplica
from kafka2011.broker.replication import effects, events
from kafka2011.broker.replication.frames import Data, Mark


@dataclass(frozen=True)
class Planted:
    """One fault: it replaces `part.method`, and the test `claim` must find it."""

    part: type
    method: str
    fault: Any
    claim: str

    @property
    def name(self) -> str:
        return str(self.fault.__name__)


PLANTED: list[Planted] = []


def planted(part: type, method: str, claim: str):  # type: ignore[no-untyped-def]
    def add(fault):  # type: ignore[no-untyped-def]
        PLANTED.append(Planted(part, method, fault, claim))
        return fault

    return add


# --- the executor ---------------------------------------------------------------------------------

_carry_out = RunningReplica._carry_out


@planted(RunningReplica, "feed", "an_event_waits_for_the_effects_of_the_one_before")
def hands_in_an_event_between_two_effects(self: Any, event: Any, bringing: Any = None) -> None:
    self._bringing = bringing
    for effect in self.machine.step(0, event):
        self._carry_out(effect)


@planted(RunningReplica, "_carry_out", "effects_are_carried_out_in_order")
def sends_behind_what_follows(self: Any, effect: Any) -> None:
    if isinstance(effect, effects.Send):
        self._behind = effect
        return
    _carry_out(self, effect)
    behind = self.__dict__.pop("_behind", None)
    if behind is not None:
        _carry_out(self, behind)


@planted(RunningReplica, "_carry_out", "effects_are_carried_out_in_order")
def leaves_barriers_waiting_when_it_leads_no_more(self: Any, effect: Any) -> None:
    if isinstance(effect, effects.CloseClients):
        self._clients.hang_up()
    else:
        _carry_out(self, effect)


@planted(RunningReplica, "_open_clients", "effects_are_carried_out_in_order")
def serves_before_it_has_its_floors(self: Any) -> None:
    self._clients.open()
    for partition, floor in self.machine.leads.floors.items():
        self._storage.set_floor(self._log_of(partition), floor)


@planted(RunningReplica, "_carry_out", "a_journal_is_reported_when_it_is_durable")
def reports_a_journal_at_once(self: Any, effect: Any) -> None:
    _carry_out(self, effect)
    if isinstance(effect, effects.Journal):
        self.feed(events.Journalled(effect.number))


@planted(RunningReplica, "_journalled", "a_journal_that_failed_ends_the_process")
def goes_on_after_a_journal_that_failed(self: Any, number: int, _error: Any) -> None:
    self.feed(events.Journalled(number))


@planted(RunningReplica, "_cut_logs", "a_cut_that_failed_is_made_again")
def takes_a_cut_that_failed_for_done(self: Any, steps: Any) -> None:
    def done(_: CutResult) -> None:
        self.feed(events.LogsCut())

    self._storage.cut_logs(steps, done)


@planted(RunningReplica, "_take_chunk", "a_chunk_is_taken_at_the_end_of_its_log_alone")
def takes_a_chunk_anywhere(self: Any, number: int, chunk: Chunk) -> None:
    end = chunk.offset + len(chunk.data)
    self.feed(events.Received(number, Data(chunk.partition, chunk.offset, end)))


@planted(RunningReplica, "_carry_out", "after_its_close_nothing_of_a_link_is_copied")
def copies_on_after_a_close(self: Any, effect: Any) -> None:
    if isinstance(effect, effects.Close):
        self.port.finish(effect.link)
    else:
        _carry_out(self, effect)


@planted(RunningReplica, "_not_written", "what_found_no_room_is_reported_as_such")
def forgets_what_found_no_room(self: Any, log: Any, error: Any) -> None:
    del self, log, error


@planted(RunningReplica, "_end", "an_effect_that_fails_ends_the_process")
def goes_on_after_an_effect_that_failed(self: Any, reason: str, of_disk: bool = False) -> None:
    del self, reason, of_disk


@planted(RunningReplica, "_carry_out", "what_a_follower_knows_as_confirmed_is_kept")
def keeps_what_a_leader_confirms_alone(self: Any, effect: Any) -> None:
    if not isinstance(effect, effects.Known):
        _carry_out(self, effect)


# --- what waits on a link -------------------------------------------------------------------------

_put_mark, _sent = Outbox.put_mark, Outbox.sent


@planted(Outbox, "put_mark", "nothing_is_left_out_and_no_mark_overtakes")
def lets_marks_overtake(self: Any, mark: Mark) -> None:
    self._items.appendleft(mark)


@planted(Outbox, "put", "nothing_is_left_out_and_no_mark_overtakes")
def lets_frames_overtake(self: Any, frame: bytes) -> None:
    self._items.appendleft(frame)


@planted(Outbox, "_forget", "nothing_is_left_out_and_no_mark_overtakes")
def forgets_bytes_behind_a_forgotten_mark(self: Any, at: int) -> None:
    while len(self._items) > at:
        self._items.pop()


@planted(Outbox, "sent", "nothing_is_left_out_and_no_mark_overtakes")
def takes_all_of_a_range_for_sent(self: Any, partition: str, end: int) -> None:
    del end
    self._items[0].pop(partition)


@planted(Outbox, "sent", "nothing_is_left_out_and_no_mark_overtakes")
def sends_a_range_from_its_start_again(self: Any, partition: str, end: int) -> None:
    offset, last = self._items[0].pop(partition)
    if end < last:
        self._items[0][partition] = (offset, last)


@planted(Outbox, "put_mark", "two_marks_wait_at_most_and_the_first_of_them_stays")
def keeps_the_newest_mark_alone(self: Any, mark: Mark) -> None:
    marks = [at for at, item in enumerate(self._items) if isinstance(item, Mark)]
    if marks and len(self._items) - marks[-1] <= 2:
        self._forget(marks[-1])
    self._items.append(mark)


@planted(Outbox, "put_mark", "two_marks_wait_at_most_and_the_first_of_them_stays")
def keeps_every_mark(self: Any, mark: Mark) -> None:
    self._items.append(mark)


@planted(Outbox, "sent", "logs_take_turns")
def sends_one_log_to_its_end(self: Any, partition: str, end: int) -> None:
    _sent(self, partition, end)
    waiting = self._items[0]
    if partition in waiting:
        self._items[0] = {partition: waiting.pop(partition), **waiting}


# --- the link -------------------------------------------------------------------------------------

_put_chunk, _encoded_mark = Link._put_chunk, Link._encoded_mark


@planted(Link, "_put_chunk", "a_logs_bytes_arrive_in_chunks_and_the_mark_behind_them")
def sends_the_first_chunk_of_a_range_alone(self: Any, waiting: Range) -> None:
    _put_chunk(self, waiting)
    rest = self._outbox._items[0].pop(waiting.partition, None)
    del rest


@planted(Link, "_put_chunk", "a_logs_bytes_arrive_in_chunks_and_the_mark_behind_them")
def sends_every_chunk_from_the_start(self: Any, waiting: Range) -> None:
    read = self._host.read_chunk
    self._host.read_chunk = lambda name, _, size: read(name, 0, size)
    _put_chunk(self, waiting)
    self._host.read_chunk = read


@planted(Link, "_encoded_mark", "a_logs_bytes_arrive_in_chunks_and_the_mark_behind_them")
def leaves_out_of_a_mark_what_is_new_in_it(self: Any, mark: Mark) -> bytes:
    self._told |= mark.watermarks
    return _encoded_mark(self, mark)


@planted(Link, "settle", "a_frame_of_another_epoch_ends_the_link")
def never_settles_on_an_epoch(self: Any, epoch: int) -> None:
    del self, epoch


@planted(Link, "finish", "a_link_that_is_finished_sends_what_waits_and_receives_no_more")
def closes_before_it_has_sent_what_waits(self: Any) -> None:
    self._outbox._items.clear()
    self.close()


@planted(Link, "finish", "a_link_that_is_finished_sends_what_waits_and_receives_no_more")
def calls_its_own_wish_the_other_sides(self: Any) -> None:
    self._pump()
    self._end(None)


@planted(Link, "check_progress", "a_link_whose_other_side_takes_nothing_ends")
def waits_for_ever_for_a_side_that_takes_nothing(self: Any, now_s: float) -> None:
    del self, now_s


@planted(Link, "_end", "bytes_that_cannot_be_read_end_the_link")
def keeps_a_link_whose_bytes_cannot_be_read(self: Any, error: Any) -> None:
    del self, error
