"""A replica that takes over: it asks the others, then writes the state once.

Safety rests on that write alone. The answers decide which replica is the best to lead, and which
ones the new leader waits for; losing all of them loses no data.
"""

from kafka2011.broker.replication.context import Context, Role, Turn
from kafka2011.broker.replication.effects import Canvass, Damaged
from kafka2011.broker.replication.events import Canvassed, Refused, Unanswered, Written
from kafka2011.broker.replication.set_state import Directory, SetState, elected


class Candidate(Role):
    """A replica that takes over, created with a state that entitles it to lead."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        assert context.state is not None
        self._version = context.version
        self._state: SetState = context.state
        self._began_ms = context.now_ms
        self._round = context.request
        self._asked = self._state.candidates & context.live - {context.directory}
        self._answers: dict[Directory, Canvassed] = {}
        self._next: SetState | None = None

    def begin(self) -> None:
        if self._asked:
            self.context.effects.append(Canvass(self._round, self._asked))

    def state_read(self) -> None:
        if self.context.version != self._version:
            self.context.turn = Turn.FOLLOW

    def canvassed(self, answer: Canvassed) -> None:
        context = self.context
        if answer.round != self._round or self._next is not None:
            return
        if answer.accepted > self._state.epoch:
            # Another replica leads already, or ZooKeeper was restored. Either way, do not try again
            # at once.
            context.rests_until_ms = context.now_ms + context.timing.look_ms
            context.turn = Turn.FOLLOW
            return
        for name, watermark in answer.watermarks.items():
            copy = context.copies.get(name)
            if watermark > (copy.flushed if copy else 0):
                context.note_damage()
                reason = f"{answer.directory} knows {name} as confirmed up to {watermark}"
                context.effects.append(Damaged(reason))
                context.turn = Turn.FOLLOW
                return
        self._answers[answer.directory] = answer

    def act(self) -> None:
        context = self.context
        if self._next is not None or context.is_stale:
            return
        if not context.may_lead:
            context.turn = Turn.FOLLOW
            return
        waited_ms = context.now_ms - self._began_ms
        if waited_ms < context.timing.canvass_ms and self._answers.keys() < self._asked:
            return
        # A better candidate is waited for no longer than it may wait for answers itself.
        if waited_ms < 2 * context.timing.canvass_ms and self._knows_a_better_one():
            return
        self._next = self._elected()
        context.write(self, self._version, self._next)

    def _elected(self) -> SetState:
        return elected(self._state, self.context.directory, self._answers)

    def _knows_a_better_one(self) -> bool:
        """Whether an in-sync member that answered is better: the wanted one, else one with more
        flushed, which the others would cut, else the first in the order of preference."""
        context, state = self.context, self._state

        def worth(directory: Directory, end: int) -> tuple[bool, int, int]:
            return directory == state.wanted_leader, end, -state.rank(directory)

        own_end = sum(copy.flushed for copy in context.copies.values())
        own = worth(context.directory, own_end)
        return any(
            worth(directory, sum(answer.ends.values())) > own
            for directory, answer in self._answers.items()
            if directory in state.isr
        )

    def answered(self, answer: Written | Refused | Unanswered) -> None:
        context = self.context
        if isinstance(answer, Written):
            assert self._next is not None
            context.version, context.state = answer.version, self._next
            context.turn = Turn.LEAD
        else:
            # Refused: another won. Unanswered: the write took effect, or may yet. The follower that
            # this becomes reads the state, and claims the next epoch if it leads this one.
            context.turn = Turn.FOLLOW
