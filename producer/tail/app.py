"""Runs a tailer: sends what it collects, flushes, stores the positions; metrics and signals.

Exit statuses: 0 after SIGTERM, or when everything is durable with `until_end`; 1 when the lines
cannot be sent, or with `until_end` when stopped, when a named file is missing or a file cannot be
read, or when the brokers were away too long; 2 when the state file cannot be used.
"""

import itertools
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka2011.coordination.errors import CoordinationError
from kafka2011.events.header import Header
from kafka2011.events.registry_client import RegistryError
from kafka2011.producer.errors import NotDurable
from kafka2011.producer.producer import Producer
from kafka2011.producer.tail.config import TailConfig
from kafka2011.producer.tail.files import Files, StateFile
from kafka2011.producer.tail.messages import BadState, Position
from kafka2011.producer.tail.tailer import Collected, Tailer
from kafka2011.protocol.errors import KafkaError
from kafka2011.protocol.names import hint_at_name
from kafka2011.runtime.clock import now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import MetricsServer, serve_metrics
from kafka2011.runtime.os_errors import reason_of

if TYPE_CHECKING:
    from kafka2011.events.envelope import Envelope

RETRY_FIRST_S = 0.1
CONTENT_BYTES = 8  # of a guid: what a file holds; the other 8 are the line's number
REPORT_MS = 5_000
SEND_MESSAGES = 500  # in one message set
SEND_BYTES = 500_000
FILE_NAME_BYTES_MAX = 255

log = get_logger(__name__)


def default_state(home: Path, topic: str) -> Path:
    """The file that keeps the positions when no setting names one."""
    name = f"tail-{topic}"
    # A lock stands beside it, and its name must not be too long either.
    is_long = len(os.fsencode(f"{name}.lock")) > FILE_NAME_BYTES_MAX
    return home / ".kafka2011" / (Path("tail", topic) if is_long else name)


class TailRun:
    """One process's run over `patterns`."""

    def __init__(self, config: TailConfig, patterns: Sequence[str], stop: threading.Event) -> None:
        """Open the state file. Raises BadState or OSError for it."""
        self._config = config
        self._stop = stop
        self._state = StateFile(config.state_file or default_state(Path.home(), config.topic))
        try:
            self._files = Files(patterns)
            resume = self._state.read()
            self._stored = resume or []  # the positions in the state file
            self._resumed = self._stored
            self.tailer = Tailer(
                self._files,
                line_bytes_max=config.line_bytes_max,
                gone_wait_s=config.gone_wait_ms / 1000,
                now_s=time.monotonic,
                resume=resume,
                from_end=config.start == "end",
                files_max=config.files_max,
                new_content=(lambda: secrets.token_hex(CONTENT_BYTES))
                if config.audit_enable
                else lambda: "",
            )
            if resume is None and config.start == "end":
                self._store_first_look()
        except (OSError, BadState):
            self._state.close()
            raise
        # A compressed set is one message for the broker.
        self._set_bytes = min(SEND_BYTES, config.payload_bytes_max // 2)
        self._producer: Producer | None = None
        self._envelope: Envelope | None = None  # made at the first send: its schema has an id
        self.attempts_failed = 0
        self.is_failing = False  # the last attempt failed
        self._is_storing = True  # the last positions could be stored
        self._is_in_doubt = False  # a flush failed, and not all that was sent before is durable yet
        self.unsent_lines = 0  # collected and not durable
        self._metrics: MetricsServer | None = None

    @property
    def state_path(self) -> Path:
        return self._state.path

    def _store_first_look(self) -> None:
        """Store where the files ended, so that the next run reads what comes from now on. Raises
        OSError."""
        self.tailer.look()
        self._stored = self.tailer.positions()
        try:
            self._state.write(self._stored)
        except OSError:
            self.tailer.close()
            raise

    def run(self, *, until_end: bool) -> int:
        """Send until the end or a stop; returns the exit status. Raises CannotListen."""
        status = 0
        is_first = True
        # A renamed file's lines may still have to be sent, under the name that it had.
        known = {position.path for position in self._resumed}
        missing = [name for name in self._files.absent() if name not in known]
        unread: set[str] = set()
        try:
            self._metrics = serve_metrics(self._config, _Numbers(self), lambda: not self.is_failing)
            while not self._stop.is_set():
                found = self.tailer.collect()
                if is_first:
                    if not self._has_named():
                        missing = self._files.patterns
                    self._complain_of(missing, until_end=until_end)
                    if until_end and not (self.tailer.file_count or self.tailer.unread):
                        return 1
                is_first = False
                is_last = until_end and not found.has_more and not found.parts
                if is_last:
                    unread |= self.tailer.unread
                    found = self.tailer.finish_all()
                if not self._deliver(found, until_end=until_end):
                    status = 0 if self._stop.is_set() and not until_end else 1
                    break
                if is_last and self.tailer.has_waiting:
                    self.tailer.make_room()
                elif is_last:
                    status = 1 if missing or unread else 0
                    break
                elif not found.parts and not found.has_more:
                    self._stop.wait(self._config.poll_ms / 1000)
            else:
                status = 1 if until_end else 0
        finally:
            self._close()
        return status

    def _has_named(self) -> bool:
        """Whether a file is there that a name or pattern is, or was, that of: the state may know
        others, which are followed, too."""
        return bool(self._files.scan()) or any(
            self._files.names(position.path) and self.tailer.is_followed(position.file)
            for position in self._resumed
        )

    def _complain_of(self, missing: Sequence[str], *, until_end: bool) -> None:
        """Name what was typed and is no file: the directories, and of `missing` the others."""
        directories = self._files.directories()
        if directories:
            log.warning(
                "file_missing",
                names=directories,
                detail="a directory is not followed: name its files, or a pattern such as "
                f"{os.path.join(directories[0], '*')!r}",
            )
        if absent := [name for name in missing if name not in directories]:
            comes = "" if until_end else " yet; they are followed when they come"
            log.warning("file_missing", names=absent, detail=f"no such files{comes}")

    def _deliver(self, found: Collected, *, until_end: bool) -> bool:
        """Send until all is durable, and store the positions; False when that was given up."""
        count = self.unsent_lines = sum(len(messages) for _, messages in found.parts)
        began_s = time.monotonic()
        pause_s = RETRY_FIRST_S
        unsent: deque[tuple[str, list[bytes]]] | None = None
        self._store_new()
        while self.unsent_lines:
            try:
                if unsent is None:
                    unsent = deque(self._sets(found))
                self._send(unsent)
                self.is_failing = False
                break
            except (KafkaError, CoordinationError, RegistryError) as error:
                self.attempts_failed += 1
                self.is_failing = True
                if pause_s == RETRY_FIRST_S:
                    reason = f"{error}{hint_at_name(self._config.topic)}"
                    log.warning("not_sent_yet", lines=self.unsent_lines, reason=reason)
                if not getattr(error, "retriable", False):
                    log.error("send_refused", reason=str(error))
                    return False
            # A file that comes and is rotated away before the brokers are back is read, too.
            self.tailer.look()
            self._store_new()
            waited_ms = (time.monotonic() - began_s) * 1000
            if self._stop.wait(pause_s) or (until_end and waited_ms > self._config.give_up_ms):
                return False
            pause_s = min(2 * pause_s, self._config.retry_max_ms / 1000)
        self.tailer.stats.lines += count
        self.tailer.stats.bytes += found.size
        self._store(self.tailer.positions())
        return True

    def _store_new(self) -> None:
        """Store where new files begin."""
        begun = self.tailer.begun(self._stored)
        if begun != self._stored:
            self._store(begun)

    def _store(self, positions: list[Position]) -> None:
        path = str(self._state.path)
        try:
            self._state.write(positions)
        except OSError as error:  # after a restart some lines are sent again
            if self._is_storing:
                log.error("positions_not_stored", path=path, reason=reason_of(error))
            self._is_storing = False
            return
        if not self._is_storing:
            log.warning("positions_stored", path=path)
        self._is_storing = True
        self._stored = positions

    def _sets(self, found: Collected) -> Iterator[tuple[str, list[bytes]]]:
        """The payloads with their keys, in sets. Raises RegistryError."""
        for (_, messages), key in zip(self._payloads(found), found.keys, strict=True):
            for some in batches(messages, self._set_bytes):
                yield key, some

    def _payloads(self, found: Collected) -> list[tuple[str, list[bytes]]]:
        """The lines by path; as events where they are counted. Raises RegistryError."""
        config = self._config
        if not config.audit_enable:
            return found.parts
        if self._envelope is None:
            from kafka2011.events.envelope import envelope

            self._envelope = envelope(config, config.topic)
        wrap, time_ms = self._envelope, now_ms()
        server, service = config.counted_server, config.audit_service
        parts = []
        for (path, lines), (content, before) in zip(found.parts, found.contents, strict=True):
            start = bytes.fromhex(content)  # a line that is sent again has the same guid
            source = os.fsencode(path).decode("utf-8", "backslashreplace")
            events = [
                wrap(
                    Header(start + number.to_bytes(8, "big"), time_ms, server, service),
                    line,
                    source,
                )
                for number, line in enumerate(lines, before)
            ]
            parts.append((path, events))
        return parts

    def _send(self, unsent: deque[tuple[str, list[bytes]]]) -> None:
        """Send the sets, and take out what is durable. Raises the first error.

        What one broker has is not sent to it again because another one is away. Where a flush does
        not tell what is durable, each further one is made behind a single set, until one of all
        that is left succeeds. In a file's order: none goes before the one in front of it.
        """
        if self._producer is None:
            self._producer = Producer(self._config)
        by_path = self._config.key == "path" and bool(self._config.zk_connect)
        while unsent:
            sent = 0
            failed: KafkaError | None = None
            for key, some in itertools.islice(unsent, 1 if self._is_in_doubt else None):
                try:
                    self._producer.send(self._config.topic, some, key if by_path else None)
                except KafkaError as error:
                    failed = error
                    break
                sent += 1
            try:
                self._producer.flush()
            except NotDurable as error:
                self._is_in_doubt = True
                raise failed or error from None
            for _ in range(sent):
                self.unsent_lines -= len(unsent.popleft()[1])
            if failed is not None:
                raise failed
        self._is_in_doubt = False

    def _close(self) -> None:
        if self._producer is not None:
            try:
                timeout_ms = 0 if self._stop.is_set() else 1000
                # The last counts and the goodbye are reported at the close.
                self._producer.close(REPORT_MS if self._config.audit_enable else timeout_ms)
            except NotDurable:
                pass  # their positions are not stored, so they are read again
        self.tailer.close()
        self._state.close()
        if self._metrics is not None:
            self._metrics.close()


def batches(messages: Sequence[bytes], bytes_max: int) -> Iterator[list[bytes]]:
    """Cut into sets of at most SEND_MESSAGES and, except for one message alone, `bytes_max`."""
    some: list[bytes] = []
    size = 0
    for message in messages:
        if some and (len(some) >= SEND_MESSAGES or size + len(message) > bytes_max):
            yield some
            some, size = [], 0
        some.append(message)
        size += len(message)
    if some:
        yield some


class _Numbers(Collector):
    """The run's numbers, read at each scrape."""

    def __init__(self, run: TailRun) -> None:
        self._run = run

    def collect(self) -> Iterator[Metric]:
        tailer = self._run.tailer
        stats = tailer.stats
        for name, text, value in (
            ("lines", "lines that are durable at the brokers", stats.lines),
            ("bytes", "bytes of those lines", stats.bytes),
            ("cut_lines", "lines above the limit, sent in pieces", stats.cut_lines),
            ("truncations", "files that were truncated or rewritten in place", stats.truncations),
            ("finished_files", "files that are gone, read to their end", stats.finished),
            ("unreadable", "attempts to open or read a file that failed", stats.unreadable),
            ("failed_attempts", "attempts to send that failed", self._run.attempts_failed),
        ):
            yield CounterMetricFamily(f"kafka2011_tail_{name}", text, value=value)
        for name, text, value in (
            ("files", "files that are followed", tailer.file_count),
            ("behind_bytes", "in the files and not read yet", tailer.behind_bytes()),
            ("unsent_lines", "read and not durable yet", self._run.unsent_lines),
        ):
            yield GaugeMetricFamily(f"kafka2011_tail_{name}", text, value=value)
