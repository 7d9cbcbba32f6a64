"""Measures the deployment's processes: a thread asks each of them what it uses, and publishes that.

Every round it reads the process registries, requests each process's page /usage, and makes a
request that leads through several processes, as a visitor of the dashboard would. The measurements
and the calls go to topics as events like all others, counted for the audit. A cluster or a registry
that is away costs the events of a round and one log line.
"""

import http.client
import itertools
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka2011.coordination.errors import CoordinationError
from kafka2011.coordination.processes import ProcessRecord, alive, expected
from kafka2011.coordination.registry import Registry
from kafka2011.events.codec import Record
from kafka2011.events.errors import EventError
from kafka2011.events.registry_client import RegistryError
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.events.topics import SERVICE_CALL, SERVICE_METRIC
from kafka2011.producer.sender import Sender, disconnect
from kafka2011.protocol.errors import KafkaError
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.config import ConfigError
from kafka2011.runtime.config import address as parsed_address
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.workers import Worker
from kafka2011.services.site.readings import (
    FIGURES,
    Call,
    Measurement,
    Reading,
    calls,
    measurements,
)

REQUEST_TIMEOUT_S = 1.0
FLUSH_TIMEOUT_MS = 2_000
BODY_BYTES_MAX = 1 << 20
FIGURE_MAX = 1 << 63
USAGE = "/usage"
# What a visitor would look at, and in which kind of process, which asks others for the answer.
VISITED_KIND = "dashboard"
VISITED = "/api/feed?member=1"

log = get_logger(__name__)


class Fetched(NamedTuple):
    """An answer; `error` says why it cannot be used, None when it can."""

    took_ms: float
    body: bytes
    timing: str
    error: str | None


def fetch(address: str, path: str) -> Fetched:
    """GET `path` of `host:port`, on a connection of its own. A text that is not an address is an
    error of the answer, too: any client can write it into a node."""
    began_s = time.perf_counter()
    body, timing, error = b"", "", None
    connection: http.client.HTTPConnection | None = None
    try:
        host, port = parsed_address(address)
        connection = http.client.HTTPConnection(host, port, timeout=REQUEST_TIMEOUT_S)
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        body = answer.read(BODY_BYTES_MAX)
        timing = answer.getheader("Server-Timing", "")
        if answer.status != 200:
            error = f"status {answer.status}"
    except TimeoutError:
        error = f"silent for {REQUEST_TIMEOUT_S * 1000:.0f} ms"
    except (OSError, ValueError, http.client.HTTPException) as failure:
        error = reason_of(failure)
    finally:
        if connection is not None:
            connection.close()
    return Fetched((time.perf_counter() - began_s) * 1000, body, timing, error)


class Meter:
    """Measures every `interval_ms` from `start` until `close`. `name` is this process,
    <datacenter>/<name>; `server` is the server that the events name.

    `registries` are the started process registries; `connect` makes a producer, and raises
    ConfigError when another producer has its journal.
    """

    def __init__(
        self,
        registries: Sequence[Registry],
        connect: Callable[[], Sender],
        codec: TopicCodec,
        *,
        name: str,
        server: str,
        interval_ms: int,
        clock: Clock = now_ms,
        request: Callable[[str, str], Fetched] = fetch,
    ) -> None:
        self._registries = registries
        self._connect = connect
        self._codec = codec
        self._name = name
        self._server = server
        self._interval_ms = interval_ms
        self._clock = clock
        self._request = request
        self._run_id = os.urandom(8)
        self._numbers = itertools.count()
        self._before: dict[str, Reading] = {}
        self._known: dict[int, list[ProcessRecord]] = {}  # by the number of the registry
        self._sender: Sender | None = None
        self._is_failing = self._leaves_out = False
        self._lock = threading.Lock()  # of the sender, and of `is_on`
        self.is_on = True
        self.events = self.lost = 0
        self._stopping = threading.Event()
        self._worker = Worker(self._run, "measure", restarts=True)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """Measure no more; what was published is durable and reported when this returns, if the
        cluster is available."""
        self._stopping.set()
        self._worker.join(3 * REQUEST_TIMEOUT_S + FLUSH_TIMEOUT_MS / 1000)
        self.switch(is_on=False)

    def switch(self, *, is_on: bool) -> None:
        """Pause, or go on. Once paused, what was published is durable and reported."""
        with self._lock:
            self.is_on = is_on
            if not is_on:
                self._disconnect()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_ms / 1000):
            if self.is_on:
                self.publish(self.measure())

    def measure(self) -> list[tuple[str, Record]]:
        """One round: the events with their topics."""
        readings: dict[str, Reading] = {}
        made: list[Call] = []
        silent: dict[str, str] = {}
        for record in self._processes():
            name = f"{record.datacenter}/{record.name}"
            if self._stopping.is_set():
                return []
            reading = self._ask(name, record, made) if record.metrics_address else None
            if reading is None:
                silent[name] = record.kind
                continue
            readings[name] = reading
            if record.kind == VISITED_KIND and record.address:
                self._visit(name, record, made)
        measured = measurements(self._before, list(readings.values()), silent)
        kept = {name: one for name, one in self._before.items() if name in silent}
        self._before = {**kept, **readings}
        at_ms = self._clock()
        events: list[Measurement | Call] = [*measured, *made]
        return [self._event(each, at_ms) for each in events]

    def _processes(self) -> list[ProcessRecord]:
        """The processes to measure, with their addresses, and those that are down, without one. Of
        a ZooKeeper that does not answer, those of the round before."""
        for number, registry in enumerate(self._registries):
            try:
                known = expected(registry)
                living = {(one.datacenter, one.name): one for one in alive(registry, known)}
            except CoordinationError as error:
                log.debug("processes_unknown", detail=str(error))
                continue
            found = [living.get((one.datacenter, one.name), one) for one in known]
            self._known[number] = [
                one for one in found if one.metrics_address or not (one.pid or one.said_goodbye)
            ]
        return [one for records in self._known.values() for one in records]

    def _ask(self, name: str, record: ProcessRecord, made: list[Call]) -> Reading | None:
        """What the process uses; None when it does not say. Its call is added to `made`."""
        answer = self._request(record.metrics_address, USAGE)
        at_ms = self._clock()
        usage = _usage(answer.body) if answer.error is None else None
        error = answer.error or (None if usage else "no usable answer")
        made += self._calls(name, f"GET {USAGE}", answer, error)
        return None if usage is None else Reading(name, record.kind, at_ms, usage)

    def _visit(self, name: str, record: ProcessRecord, made: list[Call]) -> None:
        answer = self._request(record.address, VISITED)
        made += self._calls(name, f"GET {VISITED}", answer, answer.error)

    def _calls(self, callee: str, operation: str, answer: Fetched, error: str | None) -> list[Call]:
        return calls(
            self._name,
            callee,
            operation,
            took_ms=answer.took_ms,
            timing=answer.timing,
            error=error,
            new_id=lambda: secrets.token_hex(8),
        )

    def _event(self, found: Measurement | Call, at_ms: int) -> tuple[str, Record]:
        topic = SERVICE_METRIC if isinstance(found, Measurement) else SERVICE_CALL
        guid = self._run_id + next(self._numbers).to_bytes(8, "big")
        header = {"guid": guid, "time": at_ms, "server": self._server, "service": "site"}
        return topic, {"header": header, "event_time": at_ms, **found._asdict()}

    def publish(self, events: Sequence[tuple[str, Record]]) -> None:
        """Send the events and wait until they are durable."""
        with self._lock:
            if not events or not self.is_on:
                return
            try:
                by_topic = self._encoded(events)
                if self._sender is None:
                    self._sender = self._connect()
                for topic, payloads in by_topic.items():
                    self._sender.send(topic, payloads)
                self._sender.flush(FLUSH_TIMEOUT_MS)
            except (
                *(KafkaError, CoordinationError, RegistryError, EventError, ConfigError, OSError),
            ) as error:
                self.lost += len(events)
                if not self._is_failing:
                    log.warning("measurements_not_published", detail=reason_of(error))
                self._is_failing = True
                self._disconnect()
            else:
                sent = sum(map(len, by_topic.values()))
                self.events += sent
                self.lost += len(events) - sent
                self._is_failing = False

    def _encoded(self, events: Sequence[tuple[str, Record]]) -> dict[str, list[bytes]]:
        """The payloads by topic, without those of events that do not fit their schema."""
        found: dict[str, list[bytes]] = {}
        reason = ""
        for topic, event in events:
            encode = self._codec.encoder(topic)
            try:
                found.setdefault(topic, []).append(encode(event))
            except EventError as error:
                reason = str(error)
        if reason and not self._leaves_out:
            log.warning("measurements_left_out", detail=reason)
        self._leaves_out = bool(reason)
        return {topic: payloads for topic, payloads in found.items() if payloads}

    def _disconnect(self) -> None:
        sender, self._sender = self._sender, None
        disconnect(sender, FLUSH_TIMEOUT_MS)


def _usage(body: bytes) -> Mapping[str, Any] | None:
    """The reading in an answer's body; None for anything else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    is_reading = (
        isinstance(found, dict)
        and isinstance(found.get("host"), str)
        and "pid" in found
        and isinstance(found.get("machine_network", 0), str | None)
        and all(_is_figure(found.get(name, "")) for name in FIGURES)
    )
    return found if is_reading else None


def _is_figure(value: object) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return abs(value) < FIGURE_MAX
    return value is None
