"""Books of three tiers, and how they are compared."""

from kafka2011.services.audit.books.ledger import CellKey
from kafka2011.services.audit.books.progress import PartitionKey
from kafka2011.services.audit.books.state import AuditState
from tests.support.clock import ManualClock

WINDOW = 1000
TIERS = ("live", "offline", "warehouse")
AUDIT = PartitionKey("live", "audit", 1, 0)
VIEWS = PartitionKey("live", "page-view", 1, 0)
OFFLINE_VIEWS = PartitionKey("offline", "page-view", 11, 0)
VIEW = CellKey("page-view", 0, "web-1")


def new_state(**settings: int) -> AuditState:
    state = AuditState(TIERS, WINDOW, ManualClock(), **settings)
    for key in (AUDIT, VIEWS, OFFLINE_VIEWS):
        state.begin(key, 0)
    return state


def books(state: AuditState) -> dict[CellKey, tuple[list[int], list[int]]]:
    return {key: (cell.produced, cell.counted) for key, cell in state.cells().items()}
