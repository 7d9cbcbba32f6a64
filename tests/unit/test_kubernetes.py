"""deploy/kubernetes, and deploy/kubernetes-spark on top of it, as Kustomize renders them: the API's
schemas, and the settings of each process.

Needs kubectl or kustomize; the schemas need PyPI's kubernetes-validate. Each test that lacks one
says so. No cluster is needed, and none has run it.
"""

import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka2011.cli.commands import COMMANDS
from kafka2011.cli.settings import process_name
from kafka2011.runtime.config import load
from kafka2011.runtime.process_settings import config_classes, known_names
from tests import ROOT

CLASSES = {process_name(found): found for found in config_classes()}
VERSION = "1.32"  # of the API


@pytest.fixture(params=["kubernetes", "kubernetes-spark"])
def room(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@functools.cache
def rendered(room: str) -> list[dict[str, Any]]:
    tools = {"kubectl": ["kubectl", "kustomize"], "kustomize": ["kustomize", "build"]}
    tool = next((words for name, words in tools.items() if shutil.which(name)), None)
    if tool is None:
        pytest.skip("neither kubectl nor kustomize is installed")
    done = subprocess.run(
        [*tool, ROOT / "deploy" / room], check=True, capture_output=True, text=True
    )
    return list(yaml.safe_load_all(done.stdout))


def of_kind(room: str, kind: str) -> list[dict[str, Any]]:
    return [found for found in rendered(room) if found["kind"] == kind]


def containers(room: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each StatefulSet with its one container."""
    for found in of_kind(room, "StatefulSet"):
        [container] = found["spec"]["template"]["spec"]["containers"]
        yield found, container


def test_every_object_is_one_of_the_api(room: str) -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="PyPI's kubernetes-validate is not installed"
    )
    for found in rendered(room):
        validator.validate(found, VERSION, strict=True)


def test_each_process_takes_the_settings_that_its_pod_gives_it(room: str) -> None:
    maps = {found["metadata"]["name"]: found["data"] for found in of_kind(room, "ConfigMap")}
    seen = set()
    for found, container in containers(room):
        variables = {"POD_NAME": "x-0", "POD_NAMESPACE": "n", "POD_IP": "10.0.0.1"}
        for source in container.get("envFrom", []):
            if "configMapRef" in source:
                variables |= maps[source["configMapRef"]["name"]]
        for one in container["env"]:
            key = one.get("valueFrom", {}).get("configMapKeyRef")
            if key:
                variables[one["name"]] = maps[key["name"]][key["key"]]
            elif "value" in one:
                text = one["value"]
                for name, value in variables.items():
                    text = text.replace(f"$({name})", value)
                assert "$(" not in text, f"{found['metadata']['name']}: {one}"
                variables[one["name"]] = text
        words = container["command"][-1].split() if "-c" in container["command"] else ["exec"]
        words = words if "-c" in container["command"] else [*words, *container["command"]]
        process = words[2] if len(words) > 2 else Path(container["args"][-1]).stem
        seen.add(process)
        assert process in COMMANDS
        overrides = {"broker": ["brokerid=1"], "zookeeper": ["zk.server.id=1"]}.get(process, [])
        load(
            CLASSES[process],
            environment=variables,
            overrides=overrides,
            known_elsewhere=known_names(),
        )
    assert {"zookeeper", "broker", "registry", "mirror", "load", "audit", "dashboard"} == seen


def test_each_pod_may_little_is_bounded_and_is_ready_only_while_it_serves(room: str) -> None:
    for found, container in containers(room):
        pod = found["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert container["resources"]["limits"]["memory"]
        for probe in ("startupProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["path"] == "/healthz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/metrics"
        waits_s = 300 if found["metadata"]["name"] == "loader" else 60  # for a load that runs
        assert pod["terminationGracePeriodSeconds"] == waits_s
        written = {mount["name"] for mount in container["volumeMounts"]}
        claims = {one["metadata"]["name"] for one in found["spec"].get("volumeClaimTemplates", [])}
        assert written == claims | {volume["name"] for volume in pod["volumes"]}
    budgets = {
        (b["metadata"]["namespace"], b["metadata"]["name"])
        for b in of_kind(room, "PodDisruptionBudget")
    }
    sets = {
        (one["metadata"]["namespace"], one["metadata"]["name"])
        for one, _ in containers(room)
        if one["metadata"]["name"] in ("broker", "zookeeper")
    }
    assert budgets == sets
    assert len(of_kind(room, "NetworkPolicy")) == 2


def test_what_pods_are_spread_by_is_accepted_by_an_api_server(room: str) -> None:
    """Its validation, which the schemas do not have, refuses `matchLabelKeys` without a selector:
    no StatefulSet could have been applied."""
    for found, _ in containers(room):
        [constraint] = found["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert constraint["matchLabelKeys"] == ["app"]
        assert "app" not in str(constraint["labelSelector"])
        assert "app" in found["spec"]["template"]["metadata"]["labels"]


def test_what_reads_tables_runs_the_image_that_can(room: str) -> None:
    """The dashboard of the other showed no commit of a store, and no row in a trace."""
    for found, container in containers(room):
        if "KAFKA2011_WAREHOUSE_DIR" in str(container["env"]):
            assert "/spark:" in container["image"], found["metadata"]["name"]


def test_no_two_brokers_have_one_id(room: str) -> None:
    ids = []
    for found, container in containers(room):
        first = [one["value"] for one in container["env"] if one["name"] == "FIRST_BROKER_ID"]
        ids += [int(n) + i for n in first for i in range(found["spec"]["replicas"])]
    assert sorted(ids) == [1, 2, 3, 11, 12]


def test_the_loader_on_pods_asks_for_its_own_image_and_gives_executors_the_stores_secret() -> None:
    room = "kubernetes-spark"
    assert of_kind(room, "PersistentVolumeClaim") == []
    [loader] = [one for found, one in containers(room) if found["metadata"]["name"] == "loader"]
    environment = {one["name"]: one.get("value") for one in loader["env"]}
    assert environment["EXECUTOR_IMAGE"] == loader["image"]
    secret = {"secretRef": {"name": "store"}}
    assert secret in loader["envFrom"]
    [template] = [
        yaml.safe_load(found["data"]["executor.yaml"])
        for found in of_kind(room, "ConfigMap")
        if "executor.yaml" in found["data"]
    ]
    [executor] = template["spec"]["containers"]
    assert executor["envFrom"] == [secret]
    assert executor["securityContext"] == loader["securityContext"]
