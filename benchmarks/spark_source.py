"""How many messages a second does Spark read through the data source?

    python -m benchmarks.spark_source [--messages N] [--limit-s S] [--data-dir DIR] [--fast-start]

Messages of 200 bytes in two partitions of one broker on this machine, two Spark tasks. Counted with
one column and with all, and written to Parquet; the best of three runs, for the first ones pay for
the JVM's warming up. Runs are printed as they end; behind the limit none is begun,
but each question has one. Processor time is the sum of all: broker, Python workers, JVM. On a
busy machine that column is the one to read.

The JVM has its second compiler, as docs/warehouse.md advises for long reads; --fast-start leaves
the configuration of `services/warehouse/spark_conf` as it is.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import facts
from benchmarks.running_broker import RunningBroker, running_broker
from kafka2011.events import codec
from kafka2011.events.primitives import long, text
from kafka2011.events.topics import PAGE_VIEW
from kafka2011.producer import Producer
from kafka2011.protocol import message_set

PAYLOAD_BYTES = 200
SET_MESSAGES = 1000
RUNS = 3
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BEGAN = time.perf_counter()


def payload(number: int) -> bytes:
    """Begins as an event does, so that its header is read; 200 bytes in all."""
    time_ms = long(1_700_000_000_000 + number // 10)
    start = codec.prefix_of(PAGE_VIEW) + number.to_bytes(16, "big") + time_ms
    return (start + text(b"frontend-1") + text(b"web")).ljust(PAYLOAD_BYTES, b"x")


def fill(broker: RunningBroker, count: int) -> None:
    with Producer(broker_list=broker.broker_list) as producer:
        for start in range(0, count, SET_MESSAGES):
            numbers = range(start, min(count, start + SET_MESSAGES))
            entries = message_set.encode([payload(number) for number in numbers])
            partition = start // SET_MESSAGES % 2
            producer.send_set(PAGE_VIEW, entries, broker_id=0, partition=partition)
        producer.flush(600_000)


def cpu_of_children_s() -> float:
    """Processor time of all processes below this one."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    total = 0.0
    for pid, seconds in used.items():
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        total += seconds if above == os.getpid() else 0.0
    return total


def report(what: str) -> None:
    print(f"{time.perf_counter() - BEGAN:6.1f} s  {what}", file=sys.stderr, flush=True)


def best(name: str, count: int, run: Callable[[], None], limit_s: float) -> dict[str, float]:
    """The fastest run's rate, and the least processor time of any."""
    rates: list[float] = []
    costs: list[float] = []
    while len(rates) < RUNS and not (rates and time.perf_counter() - BEGAN > limit_s):
        cpu_s, began = cpu_of_children_s(), time.perf_counter()
        run()
        rates.append(count / (time.perf_counter() - began))
        costs.append((cpu_of_children_s() - cpu_s) / count * 1e6)
        report(f"{name}: {rates[-1]:,.0f} messages/s, {costs[-1]:.2f} us of processor time each")
    return {
        "messages_per_s": round(max(rates)),
        "cpu_us_per_message": round(min(costs), 2),
        "runs": len(rates),
    }


def questions(
    session: Any, broker: RunningBroker, count: int, out: Path, limit_s: float
) -> dict[str, Any]:
    def frame(**options: str) -> Any:
        given = {"brokers": broker.broker_list, "partitions": "2", "topic": PAGE_VIEW}
        given |= {"event.forms": "*:2011", **options}
        return session.read.format("kafka2011").options(**given).load()

    def counted(**options: str) -> None:
        assert frame(**options).count() == count

    def written() -> None:
        frame().write.mode("overwrite").parquet(str(out))

    asked: dict[str, Callable[[], None]] = {
        "counted, columns=offset": lambda: counted(columns="offset"),
        "counted, all columns": counted,
        "to Parquet, all columns": written,
    }
    return {name: best(name, count, run, limit_s) for name, run in asked.items()}


def with_second_compiler(conf_dir: Path, changed: Path) -> Path:
    changed.mkdir()
    for file in conf_dir.iterdir():
        text_ = file.read_text().replace("-XX:TieredStopAtLevel=1", "")
        (changed / file.name).write_text(text_)
    return changed


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--messages", type=int, default=10_000_000)
    words.add_argument("--limit-s", type=float, default=300.0)
    words.add_argument("--fast-start", action="store_true")
    words.add_argument("--data-dir", type=Path, default=Path(tempfile.gettempdir()))
    given = words.parse_args()
    from kafka2011.services.warehouse.session import CONF_DIR, start_session

    with tempfile.TemporaryDirectory(dir=given.data_dir) as scratch:
        if not given.fast_start:
            os.environ["SPARK_CONF_DIR"] = str(
                with_second_compiler(CONF_DIR, Path(scratch, "conf"))
            )
        with running_broker(given.data_dir, num_partitions=2) as broker:
            fill(broker, given.messages)
            report(f"{given.messages:,} messages are in the log")
            session = start_session("benchmark", "local[2]")
            report("the session is there")
            try:
                out = Path(scratch, "parquet")
                found = questions(session, broker, given.messages, out, given.limit_s)
            finally:
                session.stop()
    print(json.dumps({"machine": facts(given.data_dir), "results": found}, indent=1))


if __name__ == "__main__":
    main()
