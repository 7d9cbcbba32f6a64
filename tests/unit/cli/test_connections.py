"""The addresses of a command that names none."""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka2011.cli import connections
from kafka2011.cli.audit_recount import given_forms
from kafka2011.cli.commands import Process
from kafka2011.cli.event_json import event_formatter
from kafka2011.cli.launcher import launch
from kafka2011.cli.message_formats import message_format
from kafka2011.consumer.chunk import ConsumedMessage
from kafka2011.events.forms import Form
from kafka2011.runtime.config import load, setting
from kafka2011.runtime.process_config import ProcessConfig
from kafka2011.services.embedded.control import held
from kafka2011.services.warehouse.config import WarehouseConfig
from tests.conftest import Run
from tests.support.commands import held_port


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(root: Path, pid: int, port: int) -> None:
    """What a supervisor keeps while it runs."""
    (root / "run").mkdir(parents=True)
    zookeeper = {"live": f"127.0.0.1:{port}", "offline": f"127.0.0.1:{port + 1}"}
    registry = f"http://127.0.0.1:{port + 2}"
    document = {"pid": pid, "socket": "s", "zookeeper": zookeeper, "registry": registry}
    (root / "run" / "supervisor.json").write_text(json.dumps(document))


@pytest.mark.parametrize("place", ["", "var", "my-demo", "var/live"])
def test_the_deployment_that_runs_here_is_found(place: str, here: Path) -> None:
    record(here / place, os.getpid(), 2181)
    found = [connections.zookeeper_address(given) for given in ("", "live", "offline", "zk:1/x")]
    assert found == ["127.0.0.1:2181", "127.0.0.1:2181", "127.0.0.1:2182", "zk:1/x"]
    assert connections.zookeeper_address("", "offline") == "127.0.0.1:2182"
    assert connections.found_registry() == "http://127.0.0.1:2183"
    assert connections.deployment_directory() == Path(place)
    assert connections.deployment_directory(Path("given")) == Path("given")


@pytest.mark.parametrize("zookeeper", [{}, {"live": "127.0.0.1:2181"}, {"offline": "b:1"}, [], 7])
def test_a_record_that_does_not_name_both_zookeepers_is_of_no_deployment(
    here: Path, run: Run, zookeeper: object
) -> None:
    record(here / "var", os.getpid(), 2181)
    document = {"pid": os.getpid(), "socket": "s", "zookeeper": zookeeper, "registry": ""}
    (here / "var" / "run" / "supervisor.json").write_text(json.dumps(document))
    assert connections.found_directory() is None
    status, _, err = run("status")
    assert (status, err.count("\n")) == (2, 1)
    assert "no deployment runs in this directory" in err


def test_the_form_of_events_is_that_of_the_deployment_here_unless_given(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connections.event_settings_here([]) == []
    record(here / "var", os.getpid(), 2181)
    registry = "schema.registry.url=http://127.0.0.1:2183"
    assert connections.event_settings_here([]) == [registry]
    environment = {
        "KAFKA2011_EVENT_FORMS": "sales:json",
        "KAFKA2011_EVENT_TIME_FIELD": "sales:at",
        "KAFKA2011_EVENT_SERVER_FIELD": "sales:host",
        "KAFKA2011_AUDIT_WINDOW_MS": "10000",
        "KAFKA2011_ZK_CONNECT": "h:1",
    }
    state = here / "var" / "run" / "audit.json"
    state.write_text(json.dumps({"environment": environment}))
    forms = "event.forms=sales:json"
    others = ["event.time.field=sales:at", "event.server.field=sales:host", "audit.window.ms=10000"]
    assert connections.event_settings_here(["a=b"]) == [registry, forms, *others]
    assert connections.event_settings_here(["event.forms=*:id"]) == [registry, *others]
    its = here / "its.properties"
    its.write_text("event.forms=*:2011\naudit.window.ms=1\n")
    assert connections.event_settings_here([], its) == [registry, *others[:2]]
    monkeypatch.setenv("KAFKA2011_SCHEMA_REGISTRY_URL", "http://b:1")
    assert connections.event_settings_here(["event.forms="]) == others


@pytest.mark.parametrize("tables", ["", "s3://bucket/shop"])
def test_reports_are_written_where_the_tables_are_of(
    here: Path, monkeypatch: pytest.MonkeyPatch, tables: str
) -> None:
    """Those on another deployment's tables stood among the reports of the one that runs."""

    def places(*words: str) -> tuple[str, Path]:
        given = [*connections.tables_here(words), *words]
        config, _ = load(WarehouseConfig, overrides=given, environment=os.environ)
        return str(config.warehouse_dir), config.reports_dir

    assert places() == ("var/warehouse", Path("var/reports"))
    record(here / "other", os.getpid(), 2181)
    if tables:
        loader = {"environment": {"KAFKA2011_WAREHOUSE_DIR": tables}}
        (here / "other" / "run" / "loader.json").write_text(json.dumps(loader))
    assert places() == (tables or "other/warehouse", Path("other/reports"))
    third = "warehouse.dir=third/warehouse"
    assert places(third) == ("third/warehouse", Path("third/reports"))
    assert places(third, "report.dir=x") == ("third/warehouse", Path("x"))
    monkeypatch.setenv("KAFKA2011_WAREHOUSE_DIR", "s3://bucket/fourth")
    assert places() == ("s3://bucket/fourth", Path("var/reports"))


def test_the_forms_of_files_are_those_given_before_those_on_record(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(here / "var", os.getpid(), 2181)
    recorded = {"environment": {"KAFKA2011_EVENT_FORMS": "sales:text"}}
    (here / "var" / "run" / "audit.json").write_text(json.dumps(recorded))
    assert given_forms(None, here / "var").of("sales") is Form.TEXT
    monkeypatch.setenv("KAFKA2011_EVENT_FORMS", "sales:json")
    assert given_forms(None, here / "var").of("sales") is Form.JSON
    assert given_forms("sales:bytes", here / "var").of("sales") is Form.BYTES


def test_what_has_ended_or_is_no_record_is_not_taken(here: Path, run: Run) -> None:
    record(here / "var", 2**22 + 1, 2181)  # above every process id
    (here / "other" / "run").mkdir(parents=True)
    for text in ("", "[]", "{}", f'{{"pid": {os.getpid()}, "zookeeper": []}}'):
        (here / "other" / "run" / "supervisor.json").write_text(text)
        assert connections.found_zookeeper() == connections.found_registry() == ""
        assert connections.deployment_directory() == Path("var")
        line = "no deployment runs in this directory: start one, or give --zookeeper HOST:PORT"
        assert run("topics", "list") == (2, "", f"kafka2011: {line}\n")


def test_a_process_id_that_another_has_since_a_reboot_is_not_taken(here: Path) -> None:
    record(here / "var", os.getpid(), 2181)
    with held(here / "var", "up"):
        assert connections.found_directory() == Path("var")
    assert connections.found_directory() is None


def test_of_two_deployments_one_must_be_named(here: Path, refused: Callable[..., str]) -> None:
    for number, place in enumerate(("var", "other")):
        record(here / place, os.getpid(), 2181 + 10 * number)
    line = refused(connections.zookeeper_address, "")
    assert line == (
        "kafka2011: several deployments run here: give --zookeeper 127.0.0.1:2191 for other or "
        "--zookeeper 127.0.0.1:2181 for var"
    )
    line = refused(connections.zookeeper_address, "offline")
    assert "give --zookeeper 127.0.0.1:2192 for other or" in line


def test_events_are_decoded_by_the_registry_that_runs_here(here: Path) -> None:
    record(here / "var", os.getpid(), 1)  # nothing listens on port 3
    message = ConsumedMessage(b"\0\0\0\0\1x", "page-view", 1, 0, 9)
    assert b"127.0.0.1:3" in event_formatter({}, b"")(message)


def test_events_are_decoded_by_the_form_of_the_deployment_here_unless_given(here: Path) -> None:
    record(here / "var", os.getpid(), 1)
    recorded = {"KAFKA2011_EVENT_FORMS": "page-view:json", "KAFKA2011_AUDIT_WINDOW_MS": "10000"}
    (here / "var" / "run" / "audit.json").write_text(json.dumps({"environment": recorded}))
    message = ConsumedMessage(b'{"a": 1}', "page-view", 1, 0, 9)
    assert json.loads(event_formatter({}, b"")(message))["event"] == {"a": 1}
    shown = event_formatter({"event.forms": "page-view:text"}, b"")(message)
    assert json.loads(shown)["event"] == {"value": '{"a": 1}'}
    elsewhere = message_format("event", [], False, bytes, is_here=False)(message)
    assert "event" not in json.loads(elsewhere)


@pytest.mark.parametrize(
    ("command", "setting", "option"),
    [
        ("console-producer", "zk.connect", "--zookeeper"),
        ("console-producer", "broker.list", "--broker-list"),
        ("console-consumer", "zk.connect", "--zookeeper"),
    ],
)
def test_a_place_that_an_option_names_is_refused_as_a_setting(
    command: str, setting: str, option: str, run: Run
) -> None:
    ran = run(command, "--topic", "t", "--set", f"{setting}=127.0.0.1:1")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert f"--set {setting} has no effect here: give {option}" in ran.err


def test_a_slip_of_a_datacenters_name_is_not_taken_for_a_host(refused: Callable[..., str]) -> None:
    line = refused(connections.zookeeper_address, "liv")
    assert line == (
        "kafka2011: --zookeeper 'liv' must be HOST:PORT, live or offline; did you mean live?"
    )
    assert connections.zookeeper_address("zk1") == "zk1"


@dataclass(frozen=True, kw_only=True)
class TwoZooKeepers(ProcessConfig):
    source_zk_connect: str = setting("source.zk.connect", "127.0.0.1:2181", str, "where to read")
    target_zk_connect: str = setting("target.zk.connect", "", str, "where to write")
    schema_registry_url: str = setting("schema.registry.url", "", str, "the registry")


@pytest.mark.parametrize(
    ("port", "status", "is_said"), [(3000, 1, True), (2181, 1, False), (3000, 0, False)]
)
def test_a_process_that_failed_beside_a_deployment_names_its_zookeepers(
    here: Path, capsys: pytest.CaptureFixture[str], port: int, status: int, is_said: bool
) -> None:
    record(here / "var", os.getpid(), port)
    sample = Process(f"{__name__}:TwoZooKeepers", f"{__name__}:ended", "")
    with pytest.raises(SystemExit) as ended_with:
        launch(sample, None, [f"target.zk.connect={status}"])
    assert ended_with.value.code == status
    wanted = (
        "kafka2011: source.zk.connect and target.zk.connect had another address than the "
        "deployment here (live 127.0.0.1:3000, offline 127.0.0.1:3001)"
    )
    registry = f"kafka2011: the deployment here has schema.registry.url=http://127.0.0.1:{port + 2}"
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("kafka2011")]
    assert said == [wanted] * is_said + [registry] * status


def ended(config: TwoZooKeepers, _: threading.Event) -> int:
    return int(config.target_zk_connect)


@pytest.mark.parametrize("slip", ["zk:99999", "zk:21x", "http://zk:2181", "zk:2181, other:2181"])
def test_an_address_that_can_be_none_is_refused_at_once_in_one_line(run: Run, slip: str) -> None:
    status, out, err = run("topics", "list", "--zookeeper", slip)
    assert (status, out) == (2, "")
    assert err == f"kafka2011: zk.connect={slip!r}: must be host:port,host:port/chroot\n"


def test_the_wrong_broker_names_those_of_the_deployment_here(here: Path, run: Run) -> None:
    unused = ("--server", f"kafka://127.0.0.1:{held_port()}", "--topic", "t")
    commands = (("simple-consumer", *unused), ("get-offsets", *unused, "--time", "-1"))
    for words in commands:
        assert "deployment" not in run(*words).err
    record(here / "var", os.getpid(), 2181)
    for name, port in (("broker-1", 9092), ("broker-2", 9093)):
        state = {"name": name, "pid": os.getpid(), "command": [], "ports": {"broker": port}}
        (here / "var" / "run" / f"{name}.json").write_text(json.dumps(state))
    known = "broker-1 kafka://127.0.0.1:9092, broker-2 kafka://127.0.0.1:9093\n"
    for words in commands:
        status, _, said = run(*words)
        assert status == 1
        assert said.endswith(f"; the deployment here has {known}")


def test_the_wrong_zookeeper_names_those_of_the_deployment_here(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT_MS", 200)
    unused = f"127.0.0.1:{held_port()}"
    assert "deployment" not in run("topics", "list", "--zookeeper", unused).err
    record(here / "var", os.getpid(), 2181)
    said = run("topics", "list", "--zookeeper", unused).err
    assert said.endswith("the deployment here has live 127.0.0.1:2181, offline 127.0.0.1:2182\n")


@pytest.mark.parametrize("host", ["a..b", ".a", "x" * 64, "a\x00b", "ü\udcff"])
def test_a_name_that_no_host_can_have_is_a_bad_address(run: Run, host: str) -> None:
    for connect in (f"{host}:2181", f"localhost:2181,{host}", f"{host}:2181/chroot"):
        done = run("topics", "list", "-z", connect)
        assert (done.status, len(done.err.splitlines())) == (2, 1)
        assert "must be host:port,host:port/chroot" in done.err
