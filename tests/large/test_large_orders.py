"""Orders of a nested schema that changes on the way, poison among them, and a load that is killed
again and again: `make test-large-load [ORDERS=1000000]`.

Each message is one row, equal to what was sent in every field, or one message in quarantine with
its reason; read by Polars and DuckDB. The same with few orders and deaths at each step of a load is
in tests/unit/services/warehouse/load/test_evolution.py.
"""

import os
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from kafka2011.events.registry_client import RegistryClient
from kafka2011.producer import Producer
from kafka2011.services.warehouse.load_commits import read_commits
from kafka2011.services.warehouse.session import CONF_DIR
from tests.support.brokers import start_broker
from tests.support.commands import KAFKA2011, RunningProcess, held_port, start_command
from tests.support.shop_orders import SUBJECT, TOPIC, ShopOrders, differences

COUNT = int(os.environ.get("LARGE_ORDERS", "0"))
STEP_BYTES = 2 * 1024 * 1024  # of each partition in a commit, so that there are many
SET_MESSAGES = 500
KILLS = 5

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(0),
    pytest.mark.skipif(COUNT == 0, reason="a large load: make test-large-load"),
]


def test_each_order_is_a_row_or_in_quarantine_once_however_often_the_load_is_killed(
    tmp_path: Path, zk_connect: str
) -> None:
    port = held_port()
    url = f"http://127.0.0.1:{port}"
    warehouse = tmp_path / "warehouse"
    registry_settings = {"registry.port": port, "data.dir": tmp_path / "registry"}
    variables = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(CONF_DIR),
        "KAFKA2011_ZK_CONNECT": zk_connect,
        "KAFKA2011_WAREHOUSE_DIR": str(warehouse),
        "KAFKA2011_SCHEMA_REGISTRY_URL": url,
        "KAFKA2011_LOAD_PARTITION_BYTES_MAX": str(STEP_BYTES),
    }
    began = time.monotonic()
    with (
        start_command("registry", registry_settings, tmp_path / "registry.log") as registry,
        start_broker(tmp_path, 11, zk_connect, num_partitions=2),
        start_broker(tmp_path, 12, zk_connect, num_partitions=2),
    ):
        registry.wait_for_event("serving")
        any_may_follow = Request(  # so that the last version can be one that does not fit
            f"{url}/config/{SUBJECT}",
            b'{"compatibility":"NONE"}',
            {"Content-Type": "application/json"},
            method="PUT",
        )
        urlopen(any_may_follow, timeout=30).close()
        orders = ShopOrders(RegistryClient(url).id_of, COUNT)

        def commits() -> int:
            table = warehouse / TOPIC.replace("-", "_")
            return len(read_commits(table)) if table.exists() else 0

        def loader(number: int) -> RunningProcess:
            words = [*KAFKA2011, "load", "--interval-ms", "200"]
            return RunningProcess(words, tmp_path / f"load-{number}.log", variables=variables)

        def send(numbers: range) -> None:
            with Producer(zk_connect=zk_connect) as producer:
                for start in range(numbers.start, numbers.stop, SET_MESSAGES):
                    part = range(start, min(numbers.stop, start + SET_MESSAGES))
                    producer.send(TOPIC, [orders.message(number) for number in part])
                producer.flush(600_000)

        # A part is sent while a load runs, which is killed behind a commit of it, at any step.
        parts = [COUNT * part // KILLS for part in range(KILLS + 1)]
        for number in range(KILLS):
            with loader(number) as killed:
                send(range(parts[number], parts[number + 1]))
                killed.wait_for_event("loaded", 600)
                killed.kill()
        sent_s = time.monotonic() - began
        with RunningProcess(
            [*KAFKA2011, "load"], tmp_path / "last.log", variables=variables
        ) as last:
            assert last.wait(3600) == 0, last.log()
    loaded_s = time.monotonic() - began
    name = TOPIC.replace("-", "_")
    assert differences(orders, warehouse / name, warehouse / "quarantine-tables" / name) == []
    rows = sum(info.rows for info in read_commits(warehouse / name))
    aside = COUNT - rows
    print(
        f"\n{COUNT:,} orders: {rows:,} rows, {aside:,} in quarantine, {commits()} commits, "
        f"{KILLS} kills; sent and killed after {sent_s:.0f} s, loaded after {loaded_s:.0f} s, "
        f"compared after {time.monotonic() - began:.0f} s"
    )
