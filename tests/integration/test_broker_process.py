"""The broker as a process: its command line, its statuses, its health, its numbers."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from kafka2011.broker.log import flushed_mark
from kafka2011.broker.log.file_layer import FileLayer
from tests.conftest import Run
from tests.support.brokers import RunningBroker, broker_command, start_broker
from tests.support.commands import KAFKA2011, execute
from tests.support.raw_requests import answer, entry, fetch, offsets, offsets_answer, produce
from tests.support.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.integration

V = entry(b"hello")


@pytest.mark.parametrize(
    ("words", "variables", "message"),
    [
        (["--set", "brokerid=x"], {}, "brokerid='x' in --set: must be a whole number"),
        (["--set", "no.such.name=1"], {}, "no.such.name: unknown setting"),
        (["--set", "port"], {}, "write it as --set name=value"),
        ([], {}, "brokerid, log.dir are required"),
        (["/no/such/file"], {}, "cannot read the settings in /no/such/file"),
        ([], {"KAFKA2011_BROKERRID": "1"}, "KAFKA2011_BROKERID?"),
    ],
)
def test_wrong_settings_are_one_line_and_status_2(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    variables: dict[str, str],
    message: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = run("broker", *words, status=2)
    [line] = (done.out + done.err).strip().splitlines()
    assert message in line


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
        assert "event=stopped status=1" in done.stdout + done.stderr
        last = done.stderr.strip().splitlines()[-1]
        said = f"cannot listen on 127.0.0.1:{first.port}: Address already in use; "
        assert last.startswith(f"kafka2011 broker: {said}")


def test_health_and_numbers(tmp_path: Path) -> None:
    with start_broker(tmp_path, num_partitions=2) as broker:
        page = f"http://127.0.0.1:{broker.metrics_port}/healthz"
        with urllib.request.urlopen(page, timeout=DEADLINE_S) as answered:
            assert answered.status == 200
        with broker.connect() as client:
            client.send(produce(b"t", V * 3) + produce(b"t", V, 1))
            assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(45)
            assert client.ask(fetch(b"t", 15)) == answer(V * 2)
            client.ask(fetch(b"t", 999))
            client.ask(fetch(b"t", 0, 7))
            timed = 'kafka2011_broker_request_seconds_count{request="fetch"}'
            # A response can be timed only after it was sent, and the page has its own thread.
            wait_until(lambda: broker.metrics()[timed] >= 3, "the last response is timed")
            found = broker.metrics()
    expected = {
        'messages_in_total{topic="t"}': 4,
        'bytes_in_total{topic="t"}': 60,
        'bytes_out_total{topic="t"}': 30,
        'messages_out_total{topic="t"}': 2,
        'high_watermark{partition="0",topic="t"}': 45,
        'log_end{partition="1",topic="t"}': 15,
        'segments{partition="0",topic="t"}': 1,
        'partition_online{partition="0",topic="t"}': 1,
        'request_seconds_count{request="produce"}': 2,
        'request_seconds_count{request="fetch"}': 3,
        'request_seconds_count{request="offsets"}': 1,
        'failed_fetches_total{reason="wrong-partition",topic=""}': 1,
        'failed_fetches_total{reason="offset-out-of-range",topic="t"}': 1,
        "connections": 1,
        "connections_accepted_total": 1,
        "fetch_without_sendfile_total": 0,
        "serving": 1,
    }
    assert {name: found[f"kafka2011_broker_{name}"] for name in expected} == expected
    assert found["kafka2011_broker_flush_seconds_count"] >= 2
    assert found["kafka2011_broker_bytes_read_total"] > 60


def test_not_healthy_while_it_stops(tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    slow = {"KAFKA2011_FAILPOINTS": f"before_flush=hold:{held}"}
    with start_broker(tmp_path, environment=slow) as broker, broker.connect() as client:
        client.send(produce(b"t", V))
        wait_until(lambda: (broker.log_dir / "t-0").exists(), "the produce arrived")
        broker.process.terminate()
        wait_until(lambda: "event=stopping" in broker.log(), "the stop began")
        page = f"http://127.0.0.1:{broker.metrics_port}/healthz"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(page, timeout=DEADLINE_S)
        held.unlink()
        assert broker.wait() == 0


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
        assert [one.read_bytes() for one in broker.quarantine_dir.glob("*/*")] == [b"torn"]
        assert client.ask(fetch(b"t", 0, 0, 15)) == answer(V)
        assert client.ask(fetch(b"bad")) == bytes.fromhex("00000002 ffff")
        assert (broker.store(b"bad", V), broker.latest(b"bad")) == (None, None)
    assert damaged.read_bytes() == V[:-1] + b"!" + V * 2


def test_a_flipped_bit_beside_zeros_takes_nothing_away_that_was_visible(tmp_path: Path) -> None:
    """Sectors of zeros look like a power loss, but the mark says that they were flushed."""
    padded = entry(b"begin" + bytes(4096) + b"end")
    end = len(V) + len(padded)

    with start_broker(tmp_path) as broker:
        assert broker.store(b"t", V) == len(V)
        assert broker.store(b"t", padded) == end
        wait_until(
            lambda: flushed_mark.read(FileLayer(), broker.log_dir).end_of("t-0") == end,
            "the last flush is marked",
        )
        broker.kill()
    segment = broker.log_dir / "t-0" / "00000000000000000000.kafka"
    damaged = bytearray(V + padded)
    damaged[len(V) + 12] ^= 1
    segment.write_bytes(damaged)
    with start_broker(tmp_path) as broker:
        assert broker.latest(b"t") is None
        assert f"below position {end}, up to which it was flushed" in broker.log()
    assert segment.read_bytes() == damaged
    assert list(broker.quarantine_dir.iterdir()) == []
