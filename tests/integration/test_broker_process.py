"""The broker as a process: its command line, its statuses, its health, its numbers."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.brokers import RunningBroker, broker_command, start_broker
from tests.support.commands import KAFKA2011, execute, run
from tests.support.raw_requests import answer, entry, fetch, offsets, offsets_answer, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

V = entry(b"hello")


def command(*words: str, environment: dict[str, str] | None = None) -> tuple[int, list[str]]:
    done = run("broker", *words, status=None, variables=environment)
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "brokerid=x"], "brokerid='x' in --set: must be a whole number"),
        (["--set", "no.such.name=1"], "no.such.name: unknown setting"),
        (["--set", "port"], "write it as --set name=value"),
        ([], "brokerid is required"),
        (["/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_wrong_settings_are_one_line_and_status_2(words: list[str], message: str) -> None:
    status, lines = command(*words)
    assert status == 2
    assert len(lines) == 1
    assert message in lines[0]


def test_unknown_name_in_the_environment_is_an_error() -> None:
    status, lines = command(environment={"KAFKA2011_BROKERRID": "1"})
    assert status == 2
    assert "KAFKA2011_BROKERID?" in lines[0]


def test_properties_file_environment_and_set_in_that_order(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"brokerid=1\nport=1\nlog.dir={tmp_path}/logs\nnum.partitions=3\n"
        "enable.zookeeper=false\nsome.unknown.name=1\n"
    )
    words = [*KAFKA2011, "broker", str(file), "--set", "port=0"]
    variables = {"KAFKA2011_PORT": "2", "KAFKA2011_BROKERID": "9"}
    output = tmp_path / "out.log"
    with RunningBroker(words, tmp_path / "logs", output, variables) as broker:
        broker.wait_serving()
        assert broker.port > 2
        assert "broker_id=9" in broker.log()
        assert "some.unknown.name" in broker.log()
        with broker.connect() as client:
            client.send(produce(b"t", V, 2))
            assert client.ask(offsets(b"t", -1, 1, 2)) == offsets_answer(15)
        assert broker.stop() == 0


def test_port_in_use_is_one_line_and_status_1(tmp_path: Path) -> None:
    with start_broker(tmp_path / "one") as first:
        done = execute(broker_command(tmp_path / "two", port=first.port), status=1)
        last = done.stderr.strip().splitlines()[-1]
        assert last == (
            f"kafka2011 broker: cannot listen on 127.0.0.1:{first.port}: Address already in use"
        )


def test_health_and_numbers(tmp_path: Path) -> None:
    with start_broker(tmp_path, num_partitions=2) as broker:
        page = f"http://127.0.0.1:{broker.metrics_port}/healthz"
        with urllib.request.urlopen(page, timeout=10) as answered:
            assert answered.status == 200
        with broker.connect() as client:
            client.send(produce(b"t", V * 3) + produce(b"t", V, 1))
            assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(45)
            assert client.ask(fetch(b"t", 15)) == answer(V * 2)
            client.ask(fetch(b"t", 999))
            client.ask(fetch(b"t", 0, 7))
            found = broker.metrics()
        name = "kafka2011_broker_"
        assert found[name + 'messages_in_total{topic="t"}'] == 4
        assert found[name + 'bytes_in_total{topic="t"}'] == 60
        assert found[name + 'bytes_out_total{topic="t"}'] == 30
        assert found[name + 'messages_out_total{topic="t"}'] == 2
        assert found[name + 'high_watermark{partition="0",topic="t"}'] == 45
        assert found[name + 'log_end{partition="1",topic="t"}'] == 15
        assert found[name + 'segments{partition="0",topic="t"}'] == 1
        assert found[name + 'partition_online{partition="0",topic="t"}'] == 1
        assert found[name + 'request_seconds_count{request="produce"}'] == 2
        assert found[name + 'request_seconds_count{request="fetch"}'] == 3
        assert found[name + 'request_seconds_count{request="offsets"}'] == 1
        assert found[name + "flush_seconds_count"] >= 2
        assert found[name + 'failed_fetches_total{reason="wrong-partition",topic=""}'] == 1
        assert found[name + 'failed_fetches_total{reason="offset-out-of-range",topic="t"}'] == 1
        assert found[name + "connections"] == 1
        assert found[name + "connections_accepted_total"] == 1
        assert found[name + "fetch_without_sendfile_total"] == 0
        assert found[name + "serving"] == 1
        assert found[name + "bytes_read_total"] > 60


def test_not_healthy_while_it_stops(tmp_path: Path) -> None:
    slow = {"KAFKA2011_FAILPOINTS": "before_flush=sleep:3000"}
    with start_broker(tmp_path, environment=slow) as broker, broker.connect() as client:
        client.send(produce(b"t", V))
        wait_until(lambda: (broker.log_dir / "t-0").exists(), "the produce arrived")
        broker.process.terminate()
        wait_until(lambda: "event=stopping" in broker.log(), "the stop began")
        page = f"http://127.0.0.1:{broker.metrics_port}/healthz"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(page, timeout=10)
        assert broker.wait(20) == 0


def test_recovery_is_told_in_numbers_and_lines(tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker, broker.connect() as client:
        client.send(produce(b"t", V * 10) + produce(b"bad", V * 3))
        assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(150)
        broker.kill()
    name = "00000000000000000000.kafka"
    with (broker.log_dir / "t-0" / name).open("ab") as segment:
        segment.write(b"torn")
    damaged = broker.log_dir / "bad-0" / name
    damaged.write_bytes(V[:-1] + b"!" + V * 2)
    with start_broker(tmp_path) as broker, broker.connect() as client:
        found = broker.metrics()
        assert found['kafka2011_broker_recovery_verdicts{verdict="torn"}'] == 1
        assert found['kafka2011_broker_recovery_verdicts{verdict="corrupt"}'] == 1
        assert found["kafka2011_broker_recovery_bytes"] == 154 + 45
        assert "event=torn_ending_cut" in broker.log()
        assert "event=partition_offline" in broker.log()
        assert [path.read_bytes() for path in broker.quarantine_dir.iterdir()] == [b"torn"]
        assert client.ask(fetch(b"t", 0, 0, 15)) == answer(V)
        assert client.ask(fetch(b"bad")) == bytes.fromhex("00000002 ffff")
        for request in (produce(b"bad", V), offsets(b"bad", -1, 1)):
            with broker.connect() as other:
                other.send(request)
                assert other.is_closed_by_broker()
    assert damaged.read_bytes() == V[:-1] + b"!" + V * 2
