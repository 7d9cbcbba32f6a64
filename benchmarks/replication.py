"""What does a replica set cost, and how long is it away when its leader dies or hands over?

    python -m benchmarks.replication [--rounds 20] [--size-mb 200] [--json]
    python -m benchmarks.replication --join-mb 10000 --throttle-mb 40    an empty member joins
    python -m benchmarks.replication --hang-s 30    a follower's flushes hang, then go on

All on one machine, ZooKeeper too: copies share its cores and its disk, so what counts are ratios
within one run. The times without a barrier are with the default settings, from the signal to the
first produce that is confirmed again; the prober knows the address from ZooKeeper, as a 0.7 client.
"""

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.produce import ENTRY_BYTES, PAYLOAD, fill
from benchmarks.running_broker import TICKS_PER_S, running_broker
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.producer import Producer
from kafka2011.services.zookeeper.config import ZooKeeperConfig
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.faults import disks
from tests.support.raw_requests import entry, produce
from tests.support.replica_sets import Host, ReplicaSet, create_set
from tests.support.waiting import wait_until

TOPIC = "bench"
PROBE = b"probe"
MB = 1_000_000
IDLE_S = 10.0
BEFORE_S = 10.0
SINGLES_S = 3.0
READINGS = 9
FETCH_BYTES = 1_000_000
DEFAULTS = {"replica_registration_gap_ms": 2000, "zk_sessiontimeout_ms": 6000}


class Address:
    """What `fill` needs of a broker."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.broker_list = f"0:{host}:{port}"


@contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    config = ZooKeeperConfig(client_port=0, data_dir=directory / "zookeeper", log_level="ERROR")
    with ZooKeeperServer(config) as server:
        server.start()
        yield f"{server.host}:{server.port}"


@contextmanager
def replica_set(
    directory: Path,
    connect: str,
    names: str,
    throttle_bytes: int = 0,
    hosts: Mapping[str, Host] | None = None,
) -> Iterator[ReplicaSet]:
    path = Path(tempfile.mkdtemp(prefix=f"set-{names}-", dir=directory))
    connect = f"{connect}/{path.name}"
    made = ReplicaSet(
        path, connect, names, hosts, **DEFAULTS, replica_catchup_bytes_per_second=throttle_bytes
    )
    try:
        create_set(connect, names, min_insync=len(names) // 2 + 1 if len(names) > 2 else 1)
        made.start_all()
        made.wait_in_sync()
        made.wait_for_leader()
        yield made
    finally:
        made.close()
        shutil.rmtree(path, ignore_errors=True)


def leader_of(replicas: ReplicaSet) -> Address:
    with replicas.connect() as client:
        host, port = client.socket.getpeername()[:2]
    return Address(host, port)


# --- throughput -----------------------------------------------------------------------------------


def throughput(broker: Address, size_bytes: int) -> dict[str, float]:
    """Produce sets of 1,000 messages, single messages, and read the sets (median of readings)."""
    batches = fill(broker, TOPIC, size_bytes)  # type: ignore[arg-type]
    with Producer(broker_list=broker.broker_list) as one:
        began, sent = time.perf_counter(), 0
        while time.perf_counter() - began < SINGLES_S:
            for _ in range(200):
                one.send(TOPIC, PAYLOAD)
            sent += 200
        one.flush()
        singles = sent / (time.perf_counter() - began)
    with SimpleConsumer(broker.host, broker.port) as consumer:
        readings = [bytes_per_s_read(consumer, size_bytes * 9 // 10) for _ in range(READINGS)]
    return {
        "produce_mb_per_s": batches / 1e6,
        "produce_singles_per_s": singles,
        "consume_mb_per_s": statistics.median(readings) / 1e6,
    }


def bytes_per_s_read(consumer: SimpleConsumer, size_bytes: int) -> float:
    offset, began = 0, time.perf_counter()
    while offset < size_bytes:
        size = len(consumer.fetch(TOPIC, 0, offset=offset, size_max=FETCH_BYTES).data)
        offset += size // ENTRY_BYTES * ENTRY_BYTES
    return offset / (time.perf_counter() - began)


# --- being away -----------------------------------------------------------------------------------


def until_confirmed(replicas: ReplicaSet, began: float) -> float:
    """Seconds from `began` to the first produce that is confirmed."""
    while True:
        try:
            with replicas.connect() as client:
                client.socket.settimeout(30)
                client.send(produce(TOPIC.encode(), entry(PROBE)))
                if client.latest(TOPIC.encode()) is not None:
                    return time.perf_counter() - began
        except OSError:
            pass
        if time.perf_counter() - began > 120:
            raise RuntimeError(replicas.describe())
        time.sleep(0.005)


def away(replicas: ReplicaSet, number: signal.Signals, rounds: int) -> list[float]:
    """Seconds without a barrier, each time after this signal to the leader; all are in sync."""
    found = []
    for _ in range(rounds):
        leader = replicas.wait_for_leader()
        until_confirmed(replicas, time.perf_counter())
        began = time.perf_counter()
        replicas.signal(leader, number)
        time.sleep(0.02)
        # A leader that hands over answers until it has: the gap begins with its last answer.
        last = began
        while True:
            answered = began + until_confirmed(replicas, began)
            if not replicas.brokers[leader].is_running or replicas.leader not in (leader, None):
                found.append(answered - last)
                break
            last = answered
        replicas.brokers[leader].stop()
        replicas.start(leader)
        replicas.wait_in_sync()
    return found


# --- catching up, being idle ----------------------------------------------------------------------


def catch_up(replicas: ReplicaSet) -> dict[str, float]:
    """Megabytes a second at which a member with an empty disk comes in sync; not throttled."""
    leader = replicas.wait_for_leader()
    name = next(one for one in replicas.names if one != leader)
    replicas.kill(name)
    replicas.wait_in_sync(replicas.names.replace(name, ""))
    size = sum(path.stat().st_size for path in replicas.log_dir(leader).rglob("*.kafka"))
    replicas.wipe(name)
    replicas.start(name)
    began = time.perf_counter()
    replicas.wait_in_sync()
    elapsed_s = time.perf_counter() - began
    return {"mb": size / 1e6, "seconds": elapsed_s, "mb_per_s": size / 1e6 / elapsed_s}


class Barriers:
    """Asks for a barrier behind one message again and again, on one connection, until `stop`."""

    def __init__(self, replicas: ReplicaSet) -> None:
        self._replicas = replicas
        self._is_over = threading.Event()
        self.took_ms: list[float] = []
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        with self._replicas.connect() as client:
            while not self._is_over.wait(0.01):
                began = time.perf_counter()
                client.send(produce(b"probes", entry(PROBE)))
                if client.latest(b"probes") is None:
                    raise RuntimeError(self._replicas.describe())
                self.took_ms.append((time.perf_counter() - began) * 1000)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def p99_ms(self, first: int = 0, last: int | None = None) -> float:
        return statistics.quantiles(self.took_ms[first:last], n=100)[98]


def join(replicas: ReplicaSet, size_bytes: int) -> dict[str, float]:
    """An empty member joins a set of that size: at which rate, and what barriers take meanwhile."""
    name = next(one for one in replicas.names if one != replicas.wait_for_leader())
    replicas.kill(name)
    others = replicas.names.replace(name, "")
    replicas.wait_in_sync(others)
    fill(leader_of(replicas), TOPIC, size_bytes)  # type: ignore[arg-type]
    size = sum(path.stat().st_size for path in replicas.log_dir(others[0]).rglob("*.kafka"))
    replicas.wipe(name)
    barriers = Barriers(replicas)
    time.sleep(BEFORE_S)
    before, known = barriers.p99_ms(), len(barriers.took_ms)
    replicas.start(name)
    began = time.perf_counter()
    wait_until(
        lambda: replicas.state.entered_for(name) in replicas.state.isr,
        replicas.describe,
        timeout_s=size / 1e6,
        poll_s=0.2,
    )
    elapsed_s = time.perf_counter() - began
    barriers.stop()
    return {
        "mb": size / 1e6,
        "mb_per_s": size / 1e6 / elapsed_s,
        "barrier_p99_ms_before": before,
        "barrier_p99_ms_meanwhile": barriers.p99_ms(known),
        "barriers": len(barriers.took_ms),
    }


def hang(replicas: ReplicaSet, hang_s: float, slow_files: Mapping[str, Path]) -> dict[str, float]:
    """A follower's flushes hang for so long: when it is out of sync and in again, and what barriers
    take before, in between, and afterwards."""
    name = next(one for one in replicas.names if one != replicas.wait_for_leader())
    barriers = Barriers(replicas)
    time.sleep(BEFORE_S)
    known = len(barriers.took_ms)
    slow_files[name].touch()
    began = time.perf_counter()
    replicas.wait_in_sync(replicas.names.replace(name, ""))
    out_s, without = time.perf_counter() - began, len(barriers.took_ms) + 1
    time.sleep(max(0.0, hang_s - out_s))
    healed = len(barriers.took_ms)
    slow_files[name].unlink()
    began = time.perf_counter()
    replicas.wait_in_sync()
    in_again_s = time.perf_counter() - began
    time.sleep(BEFORE_S)
    barriers.stop()
    return {
        "out_of_sync_after_s": out_s,
        "in_sync_again_after_s": in_again_s,
        "barrier_p99_ms_before": barriers.p99_ms(0, known),
        "barrier_p99_ms_while_out": barriers.p99_ms(without, healed),
        "barrier_p99_ms_after": barriers.p99_ms(healed),
        "barrier_longest_ms": max(barriers.took_ms),
        "barriers": len(barriers.took_ms),
    }


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def idle(replicas: ReplicaSet) -> dict[str, float]:
    """Percent of a core that leader and followers use when nothing comes."""
    leader = replicas.wait_for_leader()
    before = {name: cpu_s(broker.pid) for name, broker in replicas.brokers.items()}
    time.sleep(IDLE_S)
    used = {
        name: 100 * (cpu_s(broker.pid) - before[name]) / IDLE_S
        for name, broker in replicas.brokers.items()
    }
    followers = [share for name, share in used.items() if name != leader]
    return {"leader_percent": used[leader], "follower_percent": statistics.mean(followers)}


# --- all of it ------------------------------------------------------------------------------------


def measure(
    directory: Path, rounds: int, size_bytes: int
) -> Iterator[tuple[str, dict[str, float]]]:
    with running_broker(directory) as broker:
        yield "1 copy", throughput(Address(broker.host, broker.port), size_bytes)
    with zookeeper(directory) as connect:
        with replica_set(directory, connect, "ab") as replicas:
            yield "2 copies", throughput(leader_of(replicas), size_bytes)
        with replica_set(directory, connect, "abc") as replicas:
            yield "3 copies", throughput(leader_of(replicas), size_bytes)
            yield "catch-up", catch_up(replicas)
            yield "idle", idle(replicas)
            for name, number in (("takeover", signal.SIGKILL), ("handover", signal.SIGTERM)):
                times = away(replicas, number, rounds)
                worst = max(times)
                yield name, {"median_s": statistics.median(times), "worst_s": worst, "n": rounds}


def joined(
    directory: Path, size_bytes: int, throttle_bytes: int
) -> Iterator[tuple[str, dict[str, float]]]:
    with (
        zookeeper(directory) as connect,
        replica_set(directory, connect, "abc", throttle_bytes) as replicas,
    ):
        yield "join", join(replicas, size_bytes)


def hung(directory: Path, hang_s: float) -> Iterator[tuple[str, dict[str, float]]]:
    library = disks.build(directory)
    slow_files = {name: directory / f"{name}.slow" for name in "abc"}
    hosts = {
        name: Host(variables={"LD_PRELOAD": str(library), "SLOW_FILE": str(file)})
        for name, file in slow_files.items()
    }
    with (
        zookeeper(directory) as connect,
        replica_set(directory, connect, "abc", hosts=hosts) as replicas,
    ):
        yield "a follower hangs", hang(replicas, hang_s, slow_files)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replication")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--size-mb", type=int, default=200)
    parser.add_argument("--join-mb", type=int, default=0, help="measure only a member that joins")
    parser.add_argument("--throttle-mb", type=int, default=0, help="a second, for it; 0: none")
    parser.add_argument(
        "--hang-s", type=float, default=0, help="measure only a follower whose flushes hang"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--dir", type=Path, default=None, help="where to put the logs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=given.dir) as directory:
        found = measure(Path(directory), given.rounds, given.size_mb * MB)
        if given.join_mb:
            found = joined(Path(directory), given.join_mb * MB, given.throttle_mb * MB)
        elif given.hang_s:
            found = hung(Path(directory), given.hang_s)
        for what, figures in found:
            if given.json:
                print(json.dumps({"what": what, **figures}), flush=True)
            else:
                text = ", ".join(f"{name} {value:,.1f}" for name, value in figures.items())
                print(f"{what}: {text}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
