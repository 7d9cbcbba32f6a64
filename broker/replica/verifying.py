"""Answers `kafka2011 replicas verify`: reads all that is confirmed from the disk, on a thread
of its own, and sends the checksums. One at a time; another caller's link is closed."""

from typing import Any

from kafka2011.broker.core.replica_storage import ReplicaStorage
from kafka2011.broker.core.worker_threads import WorkerThreads
from kafka2011.broker.log.segment_sums import SumsJob
from kafka2011.broker.replica.frames import Sums
from kafka2011.broker.replica.port import ReplicaPort
from kafka2011.protocol.errors import ProtocolError
from kafka2011.runtime.logs import get_logger

_log: Any = get_logger(__name__)


class Verifying:
    """The verification under way, if any. Used on the loop's thread only."""

    def __init__(self, loop: Any, storage: ReplicaStorage, port: ReplicaPort) -> None:
        self._loop = loop
        self._storage = storage
        self._port = port
        self._thread: WorkerThreads | None = None
        self._job: SumsJob | None = None

    def begin(self, link: int) -> None:
        if self._job is not None:
            self._port.finish(link)
            return
        self._job = self._storage.sums_job()
        if self._thread is None:
            self._thread = WorkerThreads(self._loop, "replica-verify", 1)
        self._thread.put(self._job, lambda job: self._done(link, job))

    def _done(self, number: int, job: SumsJob) -> None:
        self._job = None
        link = self._port.get(number)
        if job.error is not None:
            _log.error("replica_not_verified", reason=str(job.error))
        elif link is not None:
            try:
                link.send(Sums(self._storage.sums_of(job)), 0)
            except ProtocolError as error:  # more than a frame holds
                _log.error("replica_not_verified", reason=str(error))
        self._port.finish(number)

    def close(self) -> None:
        """End what is under way. Idempotent."""
        if self._job is not None:
            self._job.cancel()
        if self._thread is not None:
            self._thread.close()
