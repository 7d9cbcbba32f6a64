"""Single containers of the application image: a full disk, a clean stop, a true health check."""

from collections.abc import Iterator

import docker
import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.producer import NotDurable, Producer
from kafka2011.protocol.errors import KafkaError
from tests.docker.stack import APP_IMAGE, HARDENED, RUN_LABEL, project_name
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

PORT = 9092
TOPIC = "page-view"
PAYLOAD = bytes(range(256)) * 400  # 100 KB
HEALTH = ["CMD", "python3", "-I", "-S", "/opt/kafka2011/probe.py", "8080", "/healthz"]
SECOND_NS = 1_000_000_000
# A tmpfs takes the mode of the directory below it, but not the owner.
DISK = "uid=10001,gid=10001,size=8m"


@pytest.fixture(scope="module")
def running(engine: docker.DockerClient, images: None) -> Iterator[DockerContainer]:
    """A broker on its own, its data in a tmpfs; the last test stops it."""
    options = dict(HARDENED)
    mounts = options.pop("tmpfs") | {"/data": DISK}
    settings = {
        "BROKERID": "1",
        "ENABLE_ZOOKEEPER": "false",
        "PORT": str(PORT),
        "BIND_ADDRESS": "0.0.0.0",
        "HOSTNAME": "localhost",
        "LOG_DIR": "/data/logs",
        "QUARANTINE_DIR": "/data/quarantine",
        "METRICS_PORT": "8080",
    }
    container = (
        DockerContainer(APP_IMAGE)
        .with_command(["broker"])
        .with_envs(**{f"KAFKA2011_{name}": value for name, value in settings.items()})
        .with_kwargs(
            **options,
            labels={RUN_LABEL: project_name("single")},
            healthcheck={"test": HEALTH, "interval": SECOND_NS, "timeout": 5 * SECOND_NS},
        )
        .waiting_for(LogMessageWaitStrategy("event=serving"))
    )
    container.tmpfs.update(mounts)
    container.ports[f"{PORT}/tcp"] = ("127.0.0.1", None)  # nowhere but on this host
    with container:
        yield container


def producer(container: DockerContainer) -> Producer:
    return Producer(broker_list=f"1:127.0.0.1:{container.get_exposed_port(PORT)}")


def readable(container: DockerContainer) -> list[bytes]:
    """Every payload of partition 0, from its start to its end."""
    found: list[bytes] = []
    with SimpleConsumer("127.0.0.1", int(container.get_exposed_port(PORT))) as client:
        offset = client.earliest(TOPIC, 0)
        end = client.latest(TOPIC, 0)
        while offset < end:
            messages = list(client.fetch(TOPIC, 0, offset, 4 * len(PAYLOAD)).messages())
            assert messages, f"nothing at {offset} of {end}"
            found += [payload for payload, _ in messages]
            _, offset = messages[-1]
    return found


def test_it_has_no_rights_and_its_health_check_is_true_only_while_it_serves(
    running: DockerContainer,
) -> None:
    inside = running.get_wrapped_container()
    assert inside.exec_run("id -u").output.strip() == b"10001"
    assert inside.exec_run("touch /opt/kafka2011/here").exit_code != 0

    def health() -> str:
        inside.reload()
        return str(inside.attrs["State"]["Health"]["Status"])

    wait_until(lambda: health() == "healthy", "healthy")
    probe = " ".join(HEALTH[1:])
    assert inside.exec_run(probe).exit_code == 0
    assert inside.exec_run(probe.replace("8080", "8081")).exit_code == 1
    assert inside.exec_run(f"{probe} nonsense").exit_code == 1


def test_a_full_disk_refuses_writes_and_goes_on_reading(running: DockerContainer) -> None:
    inside = running.get_wrapped_container()
    filled = inside.exec_run("dd if=/dev/zero of=/data/filler bs=1M count=4")
    assert filled.exit_code == 0, filled.output
    acknowledged = 0
    with pytest.raises((NotDurable, KafkaError)), producer(running) as sending:
        while acknowledged < 100:
            sending.send(TOPIC, PAYLOAD)
            sending.flush(120_000)
            acknowledged += 1
    assert 10 < acknowledged < 100, "the disk really filled"
    inside.reload()
    assert inside.status == "running", "the broker lives"
    assert readable(running)[:acknowledged] == [PAYLOAD] * acknowledged

    assert inside.exec_run("rm /data/filler").exit_code == 0

    def is_written() -> bool:
        try:
            with producer(running) as sending:
                sending.send(TOPIC, b"after")
                sending.flush(2_000)
        except KafkaError:
            return False
        return True

    wait_until(is_written, "writes go on once there is space")
    found = readable(running)
    assert found[:acknowledged] == [PAYLOAD] * acknowledged
    assert found[-1] == b"after"


def test_sigterm_is_a_clean_stop(running: DockerContainer) -> None:
    with producer(running) as sending:
        sending.send(TOPIC, b"before the stop")
    inside = running.get_wrapped_container()
    inside.stop(timeout=120)
    inside.reload()
    assert inside.attrs["State"]["ExitCode"] == 0
