"""Samples everything once a second: scrapes each process, takes the last state of each ZooKeeper.
While no page has been open for a while, one sample in UNSEEN_SAMPLES is taken.

One asyncio task. Every request has a deadline, so that one process that hangs never delays the
others. Each sample becomes rows, and what changed is published under one number.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kafka2011.runtime.clock import has_passed, now_ms
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import reason_of
from kafka2011.services.dashboard.changes import ChangeLog
from kafka2011.services.dashboard.config import LIVE, OFFLINE, DashboardConfig
from kafka2011.services.dashboard.faults.processes import paused_below
from kafka2011.services.dashboard.process_states import FAILURES_DOWN
from kafka2011.services.dashboard.rows.audit_cells import WINDOWS_SHOWN, cell_rows, whole_windows
from kafka2011.services.dashboard.rows.flows import faults_in_words
from kafka2011.services.dashboard.rows.sections import SectionRows
from kafka2011.services.dashboard.sampling.clusters import (
    UNSEEN_SAMPLES,
    ClusterSampler,
    pause_s,
)
from kafka2011.services.dashboard.sampling.http_client import (
    UNUSABLE,
    AnswerLate,
    HttpClient,
    RequestFailed,
    StatusNotOk,
)
from kafka2011.services.dashboard.sampling.metrics_text import Samples, parse
from kafka2011.services.dashboard.sampling.observations import (
    MAY_BE_UNKNOWN,
    WANTED,
    Observations,
    ObservedCluster,
    ObservedProcess,
)
from kafka2011.services.dashboard.sampling.spark_jobs import JobReader, Rows

# Two failures a second apart and both at their deadline are still seen within 3 s.
SCRAPE_TIMEOUT_S = 0.8
SLOW_TIMEOUT_S = 5.0
AUDIT_EVERY_S = 2.0
AUDIT_AGE_MS_MAX = 30_000  # a starved audit answers late; an older answer is no present verdict
PROXIES_EVERY_S = 2.0
LARGE_S = SCRAPE_TIMEOUT_S / 2  # a /metrics that takes longer is read apart
LARGE = "metrics of"
LARGE_BYTES = 256 * 1024  # a longer one is parsed beside the loop, which has other deadlines
LARGE_TIMEOUT_S = 20.0
LARGE_SHARE = 5  # it is read in a fifth of the time at most, or every
LARGE_PAUSE_S_MAX = 8.0  # so that a group's lag is of the same moment as its offsets, nearly
SAMPLES_AGE_MS_MAX = 60_000  # older figures of a process are none
JOBS_EVERY_S = 3.0
UNSEEN_S = 20.0  # after the last request; an open page makes one in less
UNSEEN_PAUSE_S_MAX = 10.0
SAMPLE_AGE_S_MAX = 30.0  # when all samples fail the state served is old: not healthy
CELLS_LIMIT = 10_000
PORT_DIGITS_MAX = 5
SHARE = 20  # a large request takes a 20th of the time (`pause_s`)

log = get_logger(__name__)


class Sampler:
    """Keeps the present state in `changes`; `changed` is set at each sample and replaced: wait on
    it."""

    def __init__(self, config: DashboardConfig) -> None:
        self._config = config
        self.changes = ChangeLog(first=now_ms())
        self.took_s = 0.0
        self._sampled_s: float | None = None
        self.changed = asyncio.Event()
        self._seen_s = time.monotonic()  # set before the cluster samplers' threads ask for it
        self._looked_at = asyncio.Event()
        self.cluster_samplers = {
            name: ClusterSampler(
                name,
                address,
                is_optional=name in config.more_zk_connect,
                is_unseen=lambda: self.is_unseen,
            )
            for name, address in (
                (LIVE, config.live_zk_connect),
                *config.more_zk_connect.items(),
                (OFFLINE, config.offline_zk_connect),
            )
            if address
        }
        self._deployment = SectionRows(config.history_ms, config.lag_ms)
        self._jobs = JobReader(config.warehouse_dir, config.report_dir)
        self.processes: dict[str, ObservedProcess] = {}
        self._clients: dict[str, tuple[str, HttpClient]] = {}
        self._audit: dict[str, Any] | None = None
        self._audit_ms = 0
        self._cells: Rows = {}
        self._cells_read: dict[str, int] = {}
        self._loader: dict[str, Any] | None = None
        self._commits: Rows = {}
        self._reports: Rows = {}
        self._due: dict[str, float] = {}
        self._slow: set[asyncio.Task[None]] = set()

    def seen(self) -> None:
        """Note that a page is open: sample at full speed for UNSEEN_S. On the loop's thread."""
        was_unseen = self.is_unseen
        self._seen_s = time.monotonic()
        if was_unseen:
            self._looked_at.set()
            for watcher in self.cluster_samplers.values():
                watcher.hurry()

    @property
    def is_unseen(self) -> bool:
        return time.monotonic() > self._seen_s + UNSEEN_S

    def close(self) -> None:
        for _, client in self._clients.values():
            client.close()
        for watcher in self.cluster_samplers.values():
            watcher.close()

    def dialled(self, address: str) -> tuple[str, int] | None:
        """Where to connect for a published `host:port`."""
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or len(port) > PORT_DIGITS_MAX:
            return None
        return self._config.address_map.get((host, int(port)), (host, int(port)))

    def client_of(self, key: str) -> HttpClient | None:
        """The client of a process's metrics server; None while its address is not known."""
        process = self.processes.get(key)
        address = self.dialled(process.metrics) if process else None
        if process is None or address is None:
            return None
        known = self._clients.get(key)
        if known is None or known[0] != process.metrics:
            if known is not None:
                known[1].close()
            known = self._clients[key] = (process.metrics, HttpClient(*address))
        return known[1]

    def first_of(self, kind: str) -> ObservedProcess | None:
        """A process of that kind, if possible one that answers. Those of further live datacenters
        are left out: such an audit covers its own datacenter only."""
        found = [
            process
            for process in self.processes.values()
            if process.kind == kind and process.datacenter not in self._config.more_zk_connect
        ]
        found.sort(key=lambda process: process.health.failures)
        return found[0] if found else None

    async def run(self) -> None:
        """Sample until cancelled."""
        interval_s = self._config.sample_ms / 1000
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            began = time.monotonic()
            try:
                await self.sample()
            except Exception:  # a bug must not freeze the dashboard: logged, and tried again
                log.exception("sample_failed")
            self.took_s = time.monotonic() - began
            due = max(due + interval_s, loop.time())
            await asyncio.sleep(due - loop.time())
            if self.is_unseen:
                pause_s = min((UNSEEN_SAMPLES - 1) * interval_s, UNSEEN_PAUSE_S_MAX)
                self._looked_at.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._looked_at.wait()

    @property
    def is_fresh(self) -> bool:
        """Whether the last sample is recent. Any thread."""
        age_s = None if self._sampled_s is None else time.monotonic() - self._sampled_s
        return age_s is not None and age_s < SAMPLE_AGE_S_MAX + self._config.sample_ms / 1000

    async def sample(self) -> None:
        clusters = {
            name: watcher.observed
            for name, watcher in self.cluster_samplers.items()
            if watcher.observed.at_ms or name not in self._config.more_zk_connect
        }
        self._take_registry(clusters)
        await asyncio.gather(*(self._scrape_apart(each) for each in self.processes.values()))
        self._start_slow()
        sections = self._deployment.sections(
            Observations(
                now_ms=now_ms(),
                processes=self.processes,
                clusters=clusters,
                audit=self._audit,
                audit_unheard_ms=0 if self._is_current("audit") else self._audit_ms,
                cells=self._cells,
                cells_read=self._cells_read,
                loader=self._loader if self._is_current("loader") else None,
                commits=self._commits,
                reports=self._reports,
                site=[each.site for each in self.processes.values() if each.site is not None],
            )
        )
        sections["meta"]["deployment"]["chaos"] = self._config.chaos == "on"
        sections["meta"]["deployment"]["kills"] = bool(
            self._config.chaos_dir or self._config.chaos_engine
        )
        sections["meta"]["deployment"]["disks"] = (
            self._config.chaos == "on" and self._config.chaos_dir is not None
        )
        if self._config.chaos == "on" and self._config.chaos_dir is not None:
            sections["meta"]["deployment"]["paused"] = paused_below(self._config.chaos_dir)
        sections["meta"]["deployment"]["lag_ms"] = self._config.lag_ms
        self.changes.advance(sections)
        self._sampled_s = time.monotonic()
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    # --- the registry ------------------------------------------------------------------------

    def _take_registry(self, clusters: Mapping[str, ObservedCluster]) -> None:
        for datacenter, cluster in clusters.items():
            for key, kind in cluster.expected.items():
                dc, _, name = key.partition("/")
                process = self.processes.get(key)
                if process is None:
                    process = self.processes[key] = ObservedProcess(key, dc, name, kind)
                process.registered_in = datacenter
                record = cluster.alive.get(key)
                if cluster.is_answering:
                    process.health.note_node(record is not None, key in cluster.goodbyes)
                if record is not None:
                    process.address, process.pid = record.address, record.pid
                    process.metrics = record.metrics_address
            if cluster.is_answering:
                for key in [
                    key
                    for key, process in self.processes.items()
                    if process.registered_in == datacenter and key not in cluster.expected
                ]:
                    self._forget(key)
            self._take_zookeeper(datacenter, cluster)

    def _forget(self, key: str) -> None:
        del self.processes[key]
        _, client = self._clients.pop(key, ("", None))
        if client is not None:
            client.close()

    def _take_zookeeper(self, datacenter: str, cluster: ObservedCluster) -> None:
        """Observe, by its own answers, a ZooKeeper that does not register itself."""
        key = f"{datacenter}/zookeeper-{datacenter}"
        if any(kind == "zookeeper" for kind in cluster.expected.values()):
            if key in self.processes and key not in cluster.expected:
                self._forget(key)  # it was shown so until its registration was read
            return
        name = f"zookeeper-{datacenter}"
        process = self.processes.setdefault(
            key, ObservedProcess(key, datacenter, name, "zookeeper", address=cluster.address)
        )
        process.health.note_node(cluster.is_answering, is_on_record=False)
        process.facts = {"topics": len(cluster.topics), "groups": len(cluster.groups)}

    # --- scraping the processes ----------------------------------------------------------------

    async def _scrape_apart(self, process: ObservedProcess) -> None:
        """Scrape a process; whatever goes wrong must not end the sample of the others."""
        try:
            await self._scrape(process)
        except Exception as error:
            log.exception("scrape_failed", process=process.key)
            process.health.note_scrape(False, f"an internal error: {error!r}"[:200])

    async def _scrape(self, process: ObservedProcess) -> None:
        if process.kind == "zookeeper" and not process.metrics:
            await self._probe(process)
            return
        client = self.client_of(process.key)
        if client is None:
            if process.health.was_seen or not process.health.is_alive_node:
                process.health.note_scrape(False, "not registered")
            elif not process.metrics:
                process.health.note_scrape(True)  # runs without a metrics server
            return
        # The audit's numbers come from its summary; its /metrics would compute them twice.
        is_apart = process.kind == "audit" or process.is_large
        began = time.monotonic()
        try:
            body = await client.get("/healthz" if is_apart else "/metrics", SCRAPE_TIMEOUT_S)
        except RequestFailed as error:
            late = isinstance(error, AnswerLate)
            # As where /metrics is read: what answers is there, whether it serves or not.
            if not (process.is_large and isinstance(error, StatusNotOk)):
                process.health.note_scrape(False, str(error), is_late=late)
                process.is_large = process.is_large or (late and not is_apart)
                return
        process.health.note_scrape(True)
        if process.is_large:
            if has_passed(SAMPLES_AGE_MS_MAX, process.samples_ms, now_ms()):
                process.samples = {}
        else:
            process.is_large = not is_apart and time.monotonic() - began > LARGE_S
            await self._take_metrics(process, body)
        if process.kind == "site":
            await self._fetch_site(process, client)

    async def _take_metrics(self, process: ObservedProcess, body: bytes) -> None:
        def parsed() -> Samples:
            return parse(body.decode("utf-8", "replace"), WANTED, MAY_BE_UNKNOWN)

        read_ms = now_ms()
        if len(body) > LARGE_BYTES:
            process.samples = await asyncio.get_running_loop().run_in_executor(None, parsed)
        else:
            process.samples = parsed()
        process.samples_ms = read_ms

    async def _read_large(self, process: ObservedProcess) -> None:
        """Read the /metrics of a process that takes long for it, on a connection of its own: the
        other answers meanwhile whether the process is there."""
        known = self.client_of(process.key)
        if known is None:
            return
        began = time.monotonic()
        with contextlib.closing(HttpClient(known.host, known.port)) as client:
            body = await client.get("/metrics", LARGE_TIMEOUT_S)
        process.is_large = time.monotonic() - began > LARGE_S
        await self._take_metrics(process, body)

    async def _fetch_site(self, process: ObservedProcess, client: HttpClient) -> None:
        """Fetch the page's numbers as part of each sample: their age is measured by its time."""
        try:
            answer = await client.get_json("/site", SCRAPE_TIMEOUT_S)
            _try_rows(process, site=[answer, answer])  # twice: ages need an earlier answer
            process.site = answer
        except RequestFailed as error:
            log.debug("source_not_answering", what="site", reason=str(error))

    async def _probe(self, process: ObservedProcess) -> None:
        """Probe a ZooKeeper on its client port."""
        address = self.dialled(process.address.split(",", maxsplit=1)[0].split("/")[0])
        if address is None:
            return
        writer = None
        try:
            async with asyncio.timeout(SCRAPE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"srvr")
                answer = await reader.read(4096)
            if b"Zookeeper version" not in answer:
                raise ConnectionError("it does not serve")
        except TimeoutError:
            process.health.note_scrape(False, "no answer in time", is_late=True)
        except UNUSABLE as error:
            process.health.note_scrape(False, reason_of(error)[:200])
        else:
            process.health.note_scrape(True)
        finally:
            if writer is not None:
                writer.close()

    # --- slower requests -------------------------------------------------------------------------

    def _start_slow(self) -> None:
        """Start the requests that are due, as tasks of their own: none may delay a sample."""
        for name, work, every_s in (
            ("audit", self._fetch_audit, AUDIT_EVERY_S),
            ("cells", self._fetch_cells, AUDIT_EVERY_S),
            ("loader", self._fetch_loader, AUDIT_EVERY_S),
            ("proxies", self._fetch_faults, PROXIES_EVERY_S),
            ("commits", self._read_commits, JOBS_EVERY_S),
            ("reports", self._read_reports, JOBS_EVERY_S),
            *(
                (f"{LARGE} {process.key}", partial(self._read_large, process), PROXIES_EVERY_S)
                for process in self.processes.values()
                if process.is_large and not process.health.failures
            ),
        ):
            if time.monotonic() < self._due.get(name, 0.0):
                continue
            self._due[name] = float("inf")
            task = asyncio.create_task(self._slowly(name, work, every_s))
            self._slow.add(task)
            task.add_done_callback(self._slow.discard)

    async def _slowly(self, name: str, work: Any, every_s: float) -> None:
        began = time.monotonic()
        try:
            await work()
        except RequestFailed as error:
            log.debug("source_not_answering", what=name, reason=str(error))
        except Exception:
            log.exception("source_failed", what=name)
        finally:
            now = time.monotonic()
            share = SHARE if name != "audit" else 0
            rest_s = pause_s(now - began, every_s, share)
            if name.startswith(LARGE):
                rest_s = min(pause_s(now - began, every_s, LARGE_SHARE), LARGE_PAUSE_S_MAX)
            self._due[name] = now + rest_s

    def _is_current(self, kind: str) -> bool:
        """Whether the last answer of that kind of process is recent enough to show."""
        process = self.first_of(kind)
        if process is None or process.health.failures >= FAILURES_DOWN:
            return False
        return kind != "audit" or not has_passed(AUDIT_AGE_MS_MAX, self._audit_ms, now_ms())

    async def _fetch_audit(self) -> None:
        process = self.first_of("audit")
        client = self.client_of(process.key) if process else None
        if client is not None and process is not None and not process.health.failures:
            answer = await client.get_json("/audit/summary", SLOW_TIMEOUT_S)
            _try_rows(process, audit=answer)
            self._audit, self._audit_ms = answer, now_ms()

    async def _fetch_cells(self) -> None:
        process = self.first_of("audit")
        client = self.client_of(process.key) if process else None
        if client is not None and process is not None and not process.health.failures:
            asked_ms = now_ms()
            # Never all: an hour of them is some 20 MB once parsed, most of it complete and old.
            found = await client.get_json(
                f"/audit?newest={WINDOWS_SHOWN}&limit={CELLS_LIMIT}", SLOW_TIMEOUT_S
            )
            listed, left_out = whole_windows(found["cell_list"], found["cells_left_out"])
            self._cells = cell_rows(listed)
            self._cells_read = {"at_ms": asked_ms, "left_out": left_out}

    async def _fetch_loader(self) -> None:
        process = self.first_of("loader")
        client = self.client_of(process.key) if process else None
        if client is not None and process is not None and not process.health.failures:
            answer = await client.get_json("/status", SLOW_TIMEOUT_S)
            _try_rows(process, loader=answer)
            self._loader = answer

    async def _fetch_faults(self) -> None:
        for process in [p for p in self.processes.values() if p.kind == "proxy"]:
            client = self.client_of(process.key)
            if client is None or process.health.failures:
                continue
            try:
                found = await client.get_json("/routes", SCRAPE_TIMEOUT_S)
                process.faults = faults_in_words(found)
            except RequestFailed as error:
                log.debug("source_not_answering", what=process.key, reason=str(error))
            except Exception:
                log.exception("source_failed", what=process.key)

    async def _read_commits(self) -> None:
        loop = asyncio.get_running_loop()
        self._commits = await loop.run_in_executor(None, self._jobs.commits)

    async def _read_reports(self) -> None:
        loop = asyncio.get_running_loop()
        self._reports = await loop.run_in_executor(None, self._jobs.reports)

    def picture(self, name: str) -> bytes | None:
        return self._jobs.picture(name)


def _try_rows(process: ObservedProcess, **answers: Any) -> None:
    """Make rows of the answers and discard them. Raises RequestFailed if that fails: any client can
    register a process of any kind, and such an answer would end every sample."""
    nothing = Observations(
        now_ms=now_ms(),
        processes={},
        clusters={},
        audit=None,
        cells={},
        loader=None,
        commits={},
        reports={},
    )
    try:
        SectionRows(0, 0).sections(replace(nothing, **answers))
    except Exception as error:
        log.warning("answer_not_understood", process=process.key, reason=repr(error)[:200])
        raise RequestFailed("the answer has an unexpected form") from None
