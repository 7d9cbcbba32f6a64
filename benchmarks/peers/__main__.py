"""Measures the peers that are installed; the table names the packages of the others.

200-byte messages, one producer, then one consumer of all of it; medians of `--runs`. What "durable"
means differs from peer to peer and stands in the table: compare rows of the same promise.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import facts
from benchmarks.peers import (
    activemq,
    kafka2011,
    kafka_original,
    nats_jetstream,
    rabbitmq,
    redis_streams,
)
from benchmarks.peers.common import Missing, Rates

PEERS: dict[str, tuple[str, Callable[[Path], Rates], list[str]]] = {
    "kafka2011": (kafka2011.DURABILITY, kafka2011.measure, []),
    **{
        f"Kafka 0.7.2, flush interval {interval:,}": (
            kafka_original.DURABILITY.format(f"{interval:,}"),
            partial(kafka_original.measure, flush_interval=interval),
            [],
        )
        for interval in (500, 10_000)
    },
    "Redis Streams, fsync always": (
        "appendonly, fsync before the answer",
        partial(redis_streams.measure, fsync="always"),
        ["redis-server", "--version"],
    ),
    "Redis Streams, fsync every second": (
        "appendonly, answered before the fsync",
        partial(redis_streams.measure, fsync="everysec"),
        ["redis-server", "--version"],
    ),
    "NATS JetStream": (
        nats_jetstream.DURABILITY,
        nats_jetstream.measure,
        ["nats-server", "--version"],
    ),
    "RabbitMQ": (
        rabbitmq.DURABILITY,
        rabbitmq.measure,
        ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"],
    ),
    "ActiveMQ": (
        activemq.DURABILITY,
        activemq.measure,
        ["dpkg-query", "-W", "-f", "${Version}", "activemq"],
    ),
}


def version(command: list[str]) -> str:
    if not command:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return " ".join(done.stdout.split()[:3])


def ask(measure: Callable[[Path], Rates], data_dir: Path) -> Rates:
    directory = Path(tempfile.mkdtemp(prefix="peer-", dir=data_dir)).resolve()
    try:
        return measure(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each peer (3)")
    parser.add_argument("--only", default="", help="peers whose name holds this")
    parser.add_argument("--json", action="store_true", help="the results as JSON, no table")
    parser.add_argument("--data-dir", type=Path, default=Path("var/benchmarks"))
    given = parser.parse_args()
    given.data_dir.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=given.json, width=None if sys.stdout.isatty() else 160)
    machine = facts(given.data_dir)
    results: list[dict[str, Any]] = []
    for name, (durability, measure, version_command) in PEERS.items():
        if given.only not in name:
            continue
        result: dict[str, Any] = {"peer": name, "durability": durability}
        results.append(result)
        try:
            with Console(stderr=True).status(name):
                rates = [ask(measure, given.data_dir) for _ in range(given.runs)]
        except Missing as missing:
            result["missing"] = str(missing)
            continue
        except (RuntimeError, OSError) as error:
            result["missing"] = f"failed: {error}"
            continue
        result["version"] = version(version_command)
        result["produce_messages_per_s"] = statistics.median(rate.produce for rate in rates)
        result["consume_messages_per_s"] = statistics.median(rate.consume for rate in rates)
    machine["load_average_after"] = round(os.getloadavg()[0], 2)
    entry = {"time": int(time.time()), "machine": machine, "runs": given.runs, "peers": results}
    with open(given.data_dir / "peers.jsonl", "a", encoding="utf-8") as history:
        history.write(json.dumps(entry) + "\n")
    if given.json:
        print(json.dumps(entry, indent=1))
    else:
        print_table(console, machine, results)
    return 0


def print_table(console: Console, machine: dict[str, Any], results: list[dict[str, Any]]) -> None:
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()))
    table = Table(header_style="bold", box=None)
    for heading in ("system", "version", "produce", "consume", "durability"):
        justify = "right" if heading in ("produce", "consume") else "left"
        table.add_column(heading, justify=justify)
    for result in results:
        if "missing" in result:
            table.add_row(result["peer"], "", "", "", result["missing"])
            continue
        table.add_row(
            result["peer"],
            result["version"],
            f"{result['produce_messages_per_s']:,.0f}/s",
            f"{result['consume_messages_per_s']:,.0f}/s",
            result["durability"],
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
