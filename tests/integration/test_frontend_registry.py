"""A frontend and its schema registry as processes: away at the start, gone later, refusing."""

import json
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from kafka2011.events.forms import FORMS_DEFAULT
from kafka2011.events.registry_client import RegistryClient
from kafka2011.events.schemas import schema_text
from kafka2011.events.topic_codec import TopicCodec
from kafka2011.events.topics import ACTIVITY_TOPICS, AUDIT
from tests.support.brokers import RunningBroker, start_broker
from tests.support.commands import RunningProcess, held_port, start_command
from tests.support.stored import stored_payloads

pytestmark = pytest.mark.integration

COUNT = 3000


def registry_at(tmp_path: Path, port: int) -> RunningProcess:
    settings = {"registry.port": port, "data.dir": tmp_path / "registry"}
    return start_command("registry", settings, tmp_path / "registry.log")


def frontend(tmp_path: Path, broker: RunningBroker, port: int, count: int) -> RunningProcess:
    settings = {
        "process.name": "frontend-1",
        "data.dir": tmp_path / "frontend-1",
        "broker.list": f"0:127.0.0.1:{broker.port}",
        "event.forms": "*:id",
        "schema.registry.url": f"http://127.0.0.1:{port}",
        "rate": 100_000,
        "message.count": count,
    }
    return start_command("frontend", settings, tmp_path / "frontend.log")


def test_the_registry_is_waited_for_once_and_then_not_needed(tmp_path: Path) -> None:
    port = held_port()
    with start_broker(tmp_path) as broker:
        with frontend(tmp_path, broker, port, COUNT) as run:
            run.wait_for_event("waiting_for_schema_registry")
            with registry_at(tmp_path, port) as registry:
                assert run.wait() == 0, run.log()
                codec = TopicCodec(FORMS_DEFAULT, RegistryClient(f"http://127.0.0.1:{port}"))
                stored = stored_payloads([broker.log_dir])
                found = {
                    topic: [codec.decode(topic, payload)[1] for payload in payloads]
                    for topic, payloads in stored.items()
                    if topic != AUDIT
                }
                registry.kill()
        assert set(found) == set(ACTIVITY_TOPICS)
        assert sum(map(len, found.values())) == COUNT
        # Another run, without a registry: the ids are known.
        with frontend(tmp_path, broker, port, 2 * COUNT) as run:
            assert run.wait() == 0, run.log()
            assert run.events("registry_not_answering_id_from_cache")
        again = stored_payloads([broker.log_dir])
        assert sum(len(p) for topic, p in again.items() if topic != AUDIT) == 3 * COUNT
        assert {p[:5] for p in again["share"]} == {p[:5] for p in stored["share"]}


def test_a_schema_that_may_not_follow_ends_the_frontend_with_a_line(tmp_path: Path) -> None:
    port = held_port()
    schema = json.loads(schema_text("share"))
    schema["fields"][-1]["type"] = "long"
    with registry_at(tmp_path, port) as registry, start_broker(tmp_path) as broker:
        registry.wait_for_event("serving")
        request = Request(
            f"http://127.0.0.1:{port}/subjects/share-value/versions",
            json.dumps({"schema": json.dumps(schema)}).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urlopen(request) as answer:
            assert answer.status == 200
        with frontend(tmp_path, broker, port, COUNT) as run:
            assert run.wait() == 1
            (line,) = run.events("schema_refused")
    assert "share-value" in line["detail"]
    assert "channel" in line["detail"]
