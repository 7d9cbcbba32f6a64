"""Writes the books to the store and folds old windows, every `audit.commit.ms`.

When the disk refuses, counting continues in memory and the next call writes again. /healthz fails
after `FAILURES_UNHEALTHY` refusals in a row, since a crash would mean reading those messages again
(from the stored offsets, so that nothing is counted twice).
"""

import sqlite3

from kafka2011.runtime.clock import TIME_MS_MAX, Clock, has_passed
from kafka2011.runtime.failpoints import failpoint
from kafka2011.runtime.logs import get_logger
from kafka2011.services.audit.books.persistence import put_back, take_changes
from kafka2011.services.audit.books.state import AuditState
from kafka2011.services.audit.books.store import AuditStore
from kafka2011.services.audit.config import AuditConfig
from kafka2011.services.audit.restarts import excused_up_to_ms, read_restarts

FOLD_INTERVAL_MS = 10_000
FAILURES_UNHEALTHY = 3

log = get_logger(__name__)


class BooksWriter:
    """Writes and folds the books. Used by one thread."""

    def __init__(
        self, config: AuditConfig, state: AuditState, store: AuditStore, clock: Clock
    ) -> None:
        self._config = config
        self._state = state
        self._store = store
        self._clock = clock
        self._folded_ms = 0
        self._failures = 0

    @property
    def is_healthy(self) -> bool:
        return self._failures < FAILURES_UNHEALTHY

    def write(self) -> bool:
        """Write what changed; False when the disk refused, and the next call tries again."""
        now_ms = self._clock()
        if has_passed(FOLD_INTERVAL_MS, self._folded_ms, now_ms):
            self._folded_ms = now_ms
            lateness_ms = max(self._config.lateness_of(tier) for tier in self._config.tiers)
            oldest_ms = self._config.window_ms + lateness_ms + self._config.fold_after_ms
            # Ages are by what is read: after a pause, messages of old windows are still to come.
            read_ms = min(now_ms, self._state.read_to_ms())
            self._state.fold(read_ms - oldest_ms, read_ms - self._config.instances_keep_ms)
        if self._state.ledger.is_crowded:
            self._make_room()
        changes = take_changes(self._state)
        if not changes:
            return True
        failpoint("audit_before_commit")
        try:
            self._store.write(changes)
        except (sqlite3.Error, OverflowError) as error:  # a number that no column holds
            put_back(self._state, changes)
            self._failures += 1
            log.error("books_not_written", detail=str(error), failures=self._failures)
            return False
        self._failures = 0
        failpoint("audit_after_commit")
        return True

    def _make_room(self) -> None:
        config = self._config
        try:
            restarts = self._state.reports.restarts() + read_restarts(config.restarts_file)
        except ValueError as error:  # a cell folded without its excuse would be wrong for ever
            self._state.note(str(error))
            return
        self._state.make_room(
            max(config.lateness_of(tier) for tier in config.tiers),
            TIME_MS_MAX
            if config.redelivery_expected
            else excused_up_to_ms(restarts, config.redelivery_grace_ms),
        )
