"""ZooKeeper as a replica set meets it: one node with versions, sessions, and a conditional write
that may be carried out late, without an answer, or never."""

from dataclasses import dataclass

from kafka2011.broker.replication.effects import ReadState, Register, WriteState
from kafka2011.broker.replication.events import Refused, StateRead, Written
from kafka2011.broker.replication.set_state import SetState

Address = tuple[str, int]  # host, and which process of it


@dataclass(slots=True)
class Request:
    """A host's request; `answer` is set once it has been carried out."""

    host: str
    run: int
    effect: ReadState | WriteState | Register
    answer: StateRead | Written | Refused | None = None


class Registry:
    def __init__(self, state: SetState) -> None:
        self.version = 0
        self.state = state
        self.history = [state]
        self.sessions: set[str] = set()  # directories with a live node
        self.starts: dict[str, int] = {}  # by directory
        self.address: Address | None = None
        # Every address that was ever shown; a reader follows them in order.
        self.addresses: list[Address] = []

    def put(self, state: SetState) -> None:
        self.version += 1
        self.state = state
        self.history.append(state)

    def carry_out(self, request: Request, lag: int) -> None:
        """Carry the request out, and keep the answer. A reading is of `lag` versions ago."""
        effect = request.effect
        number = effect.request
        if isinstance(effect, ReadState):
            version = max(0, self.version - lag)
            live = frozenset(self.sessions)
            request.answer = StateRead(number, version, self.history[version], live)
        elif effect.version != self.version:
            request.answer = Refused(number)
        elif isinstance(effect, WriteState):
            self.put(effect.state)
            request.answer = Written(number, self.version)
        else:
            self._show(request, effect)
            request.answer = Written(number, self.version)

    def _show(self, request: Request, effect: Register) -> None:
        self.address = (request.host, request.run) if effect.present else None
        if self.address is not None and self.addresses[-1:] != [self.address]:
            self.addresses.append(self.address)
