"""Wires `kafka2011 frontend`: journal, schemas, producer, source, delivery, metrics, signals.

Exit statuses: 0 when a finite source is sent to its end and everything is durable, or after a clean
stop; 1 when something could not be delivered or written (the next start goes on from the journal),
the journal cannot be used, the schema registry refuses a schema, the input is refused, or under
half of all that was sent could be read (the next start has nothing left to send, and ends with 0);
2 when the input cannot be read.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from kafka2011.coordination.errors import CoordinationError
from kafka2011.events.registry_client import RegistryRefused
from kafka2011.producer import NotDurable, Producer
from kafka2011.producer.counting.journal import Journal, JournalCorrupt, JournalInUse, Position
from kafka2011.runtime.clock import Clock, now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.metrics import MetricsServer, address_text, serve_metrics
from kafka2011.runtime.os_errors import CannotListen, reason_of
from kafka2011.services.frontend.config import FrontendConfig
from kafka2011.services.frontend.delivery import Delivery, DeliveryPolicy, NotDelivered
from kafka2011.services.frontend.followed_log import (
    FollowedLogSource,
    followed_position,
    is_same_log,
    plain_position,
)
from kafka2011.services.frontend.input_file import (
    PLAIN,
    InputRefused,
    described,
    examine,
    kind_of,
    mostly_unreadable,
)
from kafka2011.services.frontend.keyed import KeyedProducer, announce
from kafka2011.services.frontend.progress import DeliveryCollector, Progress
from kafka2011.services.frontend.schemas import prefixes, topics_of
from kafka2011.services.frontend.sources import (
    BATCH_EVENTS_MAX,
    AccessLogSource,
    NoEvents,
    Source,
    SyntheticSource,
)
from kafka2011.services.frontend.start import Start, must_adopt, start_of
from kafka2011.services.frontend.synthetic import ITEM_TOPICS, KEYED_TOPICS
from kafka2011.services.registration import ServiceRegistration

CONNECT_RETRY_S = 1.0
SCHEMAS_FILE = "schemas.json"  # in data.dir

_Made = TypeVar("_Made")

log = get_logger(__name__)


def run(config: FrontendConfig, stop: threading.Event, clock: Clock = now_ms) -> int:
    """Send until the source ends or `stop` is set; returns the exit status of the process."""
    try:
        descriptor = _descriptor(config)
    except OSError as error:
        log.error("input_unreadable", path=config.input_path, detail=error.strerror)
        return 2
    try:
        journal = Journal(config.data_dir, config.server_name, config.window_ms)
    except (JournalInUse, JournalCorrupt) as error:
        log.error("journal_unusable", detail=str(error))
        return 1
    except OSError as error:
        log.error("data_dir_not_writable", directory=str(config.data_dir), detail=error.strerror)
        return 1
    with journal:
        try:
            codec = config.topic_codec(config.data_dir / SCHEMAS_FILE)
            starts = prefixes(codec, topics_of(config.source), stop)
        except RegistryRefused as error:
            log.error("schema_refused", detail=str(error))
            return 1
        producer = _connected(lambda: Producer(config), stop) if starts is not None else None
        if starts is None or producer is None:
            return 0  # stopped before there was anything to send to
        keyed = None
        if config.places_by_key:
            keyed = _connected(lambda: KeyedProducer(config), stop)
            if keyed is None:
                producer.close(timeout_ms=0)
                return 0
            wanted = [*KEYED_TOPICS, *(ITEM_TOPICS if config.keys_items else ())]
            announce(keyed.producer, keyed.registry, wanted, stop)
        frontend = _Frontend(config, stop, clock, journal, producer, starts=starts, keyed=keyed)
        try:
            return frontend.run(descriptor)
        finally:
            frontend.close()


def _descriptor(config: FrontendConfig) -> object:
    """The source's descriptor. Raises OSError when the input cannot be read."""
    if config.source == "none":
        return NoEvents.descriptor()
    if config.source == "synthetic":
        return SyntheticSource.descriptor(
            config.seed, config.synthetic_rate, config.event_count_max
        )
    path = Path(config.input_path)
    try:
        with path.open("rb"):
            return AccessLogSource.descriptor(path)
    except FileNotFoundError:
        # A followed log may be missing during its rotation, except at the very first start.
        if not (config.input_follow and Journal.is_in(config.data_dir)):
            raise
        return AccessLogSource.descriptor_of_missing(path)


def _connected(connect: Callable[[], _Made], stop: threading.Event) -> _Made | None:
    """A producer, once ZooKeeper answers (at once for a broker list); None if stopped first."""
    is_reported = False
    while not stop.is_set():
        try:
            return connect()
        except CoordinationError as error:
            if not is_reported:
                log.warning("waiting_for_zookeeper", detail=str(error))
                is_reported = True
        stop.wait(CONNECT_RETRY_S)
    return None


class _Frontend:
    def __init__(
        self,
        config: FrontendConfig,
        stop: threading.Event,
        clock: Clock,
        journal: Journal,
        producer: Producer,
        *,
        starts: Mapping[str, bytes],
        keyed: KeyedProducer | None,
    ) -> None:
        self._config = config
        self._starts = starts
        self._stop = stop
        self._clock = clock
        self._journal = journal
        self._producer = producer
        self._keyed = keyed
        self._delivery = self._new_delivery()
        self._is_serving = False
        self._metrics: MetricsServer | None = None
        self._registration: ServiceRegistration | None = None
        self._source: Source | None = None
        # How it ended: counted as a failure unless `run` says otherwise.
        self._is_stopped = self._has_finished = False

    def run(self, descriptor: object) -> int:
        config, journal = self._config, self._journal
        try:
            self._serve()
            if must_adopt(journal.state, config.server_name, config.window_ms):
                self._delivery.finish(is_source_finished=False)
                journal.adopt(config.server_name, config.window_ms)
                self._delivery = self._new_delivery()
            progress = Progress(
                config.data_dir, journal, self._delivery, self._clock, time.monotonic
            )
            self._begin(descriptor)
            refused, is_over = "", False
            try:
                is_over = self._send_all(progress)
            except InputRefused as error:  # what comes before the damage is delivered
                refused = str(error)
            self._delivery.finish(is_over)
            progress.write(is_forced=True)
            if refused:
                raise InputRefused(refused)
        except NotDelivered as error:
            log.error("delivery_failed", detail=str(error))
            return 1
        except InputRefused as error:
            log.error("input_refused", detail=str(error))
            return 1
        except CannotListen:
            raise
        except OSError as error:
            log.error("sending_failed", detail=reason_of(error))
            return 1
        self._is_stopped, self._has_finished = True, is_over
        sent = dict(journal.state.totals)
        log.info(
            "finished" if is_over else "stopped",
            sent=sent,
            resent_sets=self._delivery.stats.resent_sets,
        )
        if is_over and self._source is not None and (complaint := mostly_unreadable(sent)):
            log.error("input_mostly_unreadable", detail=complaint)
            return 1
        return 0

    def close(self) -> None:
        """Close everything. Idempotent; what is still pending is sent by the next start."""
        if self._source is not None:
            self._source.close()
        try:
            self._producer.close(timeout_ms=0)
        except NotDurable as error:  # after a failed delivery, which the journal does not cover
            log.warning("closed", detail=str(error))
        if self._keyed is not None:
            self._keyed.close()
        if self._registration is not None:
            self._registration.close(says_goodbye=self._is_stopped, has_finished=self._has_finished)
        if self._metrics is not None:
            self._metrics.close()

    def _new_delivery(self) -> Delivery:
        config = self._config
        return Delivery(
            self._producer,
            self._journal,
            keyed=self._keyed.producer if self._keyed is not None else None,
            service=config.service,
            clock=self._clock,
            stopping=self._stop,
            with_new_files=self._with_new_files,
            policy=DeliveryPolicy(
                flush_interval_ms=config.flush_interval_ms,
                heartbeat_interval_ms=config.heartbeat_interval_ms,
                messages_max=config.unconfirmed_messages_max,
                set_messages_max=config.batch_size,
                stop_timeout_ms=config.stop_timeout_ms,
            ),
        )

    def _with_new_files(self, position: Position) -> Position:
        source = self._source
        if isinstance(source, FollowedLogSource):
            return source.with_new_files(position)
        return position

    def _serve(self) -> None:
        config = self._config
        self._metrics = serve_metrics(
            config, DeliveryCollector(lambda: self._delivery), lambda: self._is_serving
        )
        self._is_serving = True
        self._registration = ServiceRegistration(
            config,
            kind="frontend",
            zk_connect=config.live_zk_connect or config.zk_connect,
            metrics=self._metrics,
        )
        log.info(
            "serving",
            source=config.source,
            server=config.server_name,
            metrics=address_text(self._metrics),
            pid=os.getpid(),
        )

    def _begin(self, descriptor: object) -> None:
        """Open the source where it should go on; open none if there is nothing left to send."""
        config, state = self._config, self._journal.state
        follows = config.source == "access-log" and config.input_follow
        can_continue = True
        if isinstance(descriptor, dict) and is_same_log(state.source, descriptor):
            if follows and not state.is_finished:
                descriptor = state.source  # whichever file has the path now
            elif descriptor == state.source:
                at = plain_position(state.position, descriptor, state.run)
                can_continue = AccessLogSource.can_continue(Path(config.input_path), at)
        start = start_of(state, descriptor, can_continue)
        if start is Start.NOTHING_LEFT:
            log.warning(
                "source_sent_before",
                hint="remove the data directory to send it again",
                directory=str(config.data_dir),
            )
            return
        if not can_continue:
            log.warning("input_written_anew", path=config.input_path, position=state.position)
        if start is Start.NEW:
            if config.source == "access-log":
                self._look_at_input(follows)
            self._journal.begin_run(descriptor, self._clock())
        state = self._journal.state
        log.info("run_started", run=state.run, continues=start.name, position=state.position)
        self._source = self._new_source(start, follows)

    def _new_source(self, start: Start, follows: bool) -> Source:
        """The source from the journal's position on. Raises OSError when it cannot be read."""
        config, state = self._config, self._journal.state
        run_id = bytes.fromhex(state.run)
        if config.source == "none":
            return NoEvents()
        if config.source == "synthetic":
            return SyntheticSource(
                seed=config.seed,
                rate=config.synthetic_rate,
                count_max=config.event_count_max,
                run_id=run_id,
                start_ms=state.start_ms,
                server=config.server_name,
                service=config.service,
                clock=self._clock,
                position=state.position,
                prefix=self._starts.__getitem__,
                catch_up_ms=config.pause_ms_max,
                sent_max=self._sent_max(start),
                keys_items=config.keys_items,
            )
        of_a_log = FollowedLogSource if follows else AccessLogSource
        position_of = followed_position if follows else plain_position
        return of_a_log(
            Path(config.input_path),
            run_id=run_id,
            server=config.server_name,
            service=config.service,
            clock=self._clock,
            rate=config.rate,
            position=position_of(state.position, state.source, state.run),
            prefix=self._starts.__getitem__,
            log_format=config.input_format,
        )

    def _look_at_input(self, follows: bool) -> None:
        """Check the input. Raises InputRefused if it cannot be sent, OSError if unreadable."""
        path = Path(self._config.input_path)
        if not follows:
            sample = examine(path, self._config.input_format)
            log.info("input_opened", path=str(path), found=described(sample, self._clock()))
        elif path.exists() and (kind := kind_of(path)) != PLAIN:
            raise InputRefused(f"{path}: a log that is followed cannot be packed; this is {kind}")

    def _sent_max(self, start: Start) -> int:
        """How many events behind the journalled position an earlier process may have sent."""
        if start is Start.NEW:
            return 0
        state = self._journal.state
        if state.is_stopped:
            self._journal.sent(state.position, [])  # from here on, some may have been
            return 0
        return self._config.unconfirmed_messages_max + BATCH_EVENTS_MAX

    def _send_all(self, progress: Progress) -> bool:
        """Send batch after batch; True when the source has no more, False when stopped."""
        source, delivery = self._source, self._delivery
        while not self._stop.is_set():
            batch = source.next_batch() if source is not None else None
            if batch is None:
                return True
            if batch.events:
                delivery.send(batch.events, batch.position, batch.keys)
            elif batch.is_to_be_stored:
                delivery.send([], batch.position)
                delivery.flush()
            wait_s = delivery.tick()
            progress.write()
            pause_ms = batch.wait_ms
            if batch.events and len(batch.events) < BATCH_EVENTS_MAX:
                pause_ms = self._config.gather_ms  # else each due event would be sent alone
            if pause_ms or not batch.events:
                self._stop.wait(min(pause_ms / 1000, wait_s))
        return False
