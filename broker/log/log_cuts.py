"""Carries out a leader's plan on a manager's logs: begun on the loop, run in a thread, completed on
the loop. Whatever happens in between, each log is whole, and stays the same object."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from kafka2011.broker.log.cutting import CutJob, CutKind, LogCut
from kafka2011.broker.log.errors import StorageFailed
from kafka2011.broker.log.file_layer import FileLayer
from kafka2011.broker.log.flushed_mark import Mark
from kafka2011.broker.log.log import Log, LogState
from kafka2011.broker.log.log_manager import LogManager
from kafka2011.broker.log.quarantine import Quarantine


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to become of one partition's log."""

    kind: CutKind
    offset: int


class LogCuts:
    """Cuts any number of logs together, one cut at a time. Loop's thread only."""

    def __init__(self, logs: LogManager, files: FileLayer, quarantine: Quarantine) -> None:
        self._logs = logs
        self._files = files
        self._quarantine = quarantine
        self._forgotten: dict[str, Mark | None] = {}

    def begin(self, wanted: Mapping[tuple[str, int], Wanted]) -> CutJob:
        """The job to `run` in any thread, then to hand to `complete`. Until then the logs are out
        of use. Everything in them must be flushed.

        Raises StorageFailed, LimitReached, OSError: nothing was begun; ask again later.
        """
        cuts = []
        for (topic, partition), one in wanted.items():
            path = self._logs.path_of(topic, partition)
            log = self._logs.get(topic, partition)
            if log is not None:
                _check(log)
            if log is not None or one.kind is CutKind.ANEW:
                cuts.append((log, LogCut(one.kind, path, one.offset)))
        return CutJob(
            self._files,
            self._quarantine,
            [self._begin_one(log, cut) for log, cut in cuts],
            self._logs.begin_marking(),
        )

    def _begin_one(self, log: Log | None, cut: LogCut) -> LogCut:
        name = cut.directory.name
        if log is not None:
            cut = log.begin_cut(cut.kind, cut.offset)
        if log is not None and cut.kind is CutKind.SHORTER:
            self._logs.marks.lower(log)
        else:
            self._forgotten[name] = self._logs.marks.forget(name)
            if log is not None:
                log.marked_end = -1
        return cut

    def complete(self, job: CutJob) -> None:
        """Bring the logs in line with what the job did."""
        for cut in job.cuts:
            topic, _, number = cut.directory.name.rpartition("-")
            log = self._logs.get(topic, int(number))
            if job.error is not None:
                if log is not None and job.has_begun:
                    log.fail_cut(job.error.strerror or repr(job.error))
                elif log is not None:
                    log.abandon_cut()
                    self._logs.marks.restore(log.name, self._forgotten.get(log.name))
            elif log is None:
                self._logs.adopt(topic, int(number), cut.offset)
            elif cut.kind is CutKind.ASIDE:
                self._logs.set_aside(log)
            else:
                log.complete_cut(cut)
        self._forgotten.clear()


def _check(log: Log) -> None:
    if log.state is LogState.FAILED:
        raise StorageFailed(f"{log.name} is read-only: {log.state_reason}")
    if log.is_retiring:
        raise OSError(errno.EBUSY, f"{log.name} is removing old segments")
