"""deploy/kubernetes as Kustomize renders it: the API's schemas, and the settings of each process.

Needs kubectl or kustomize; the schemas need PyPI's kubernetes-validate. Each test that lacks one
says so. No cluster is needed, and none has run it.
"""

import functools
import shutil
import subprocess
from collections.abc import Iterator
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


@functools.cache
def rendered() -> list[dict[str, Any]]:
    tools = {"kubectl": ["kubectl", "kustomize"], "kustomize": ["kustomize", "build"]}
    tool = next((words for name, words in tools.items() if shutil.which(name)), None)
    if tool is None:
        pytest.skip("neither kubectl nor kustomize is installed")
    done = subprocess.run(
        [*tool, ROOT / "deploy/kubernetes"], check=True, capture_output=True, text=True
    )
    return list(yaml.safe_load_all(done.stdout))


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [found for found in rendered() if found["kind"] == kind]


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each StatefulSet with its one container."""
    for found in of_kind("StatefulSet"):
        [container] = found["spec"]["template"]["spec"]["containers"]
        yield found, container


def test_every_object_is_one_of_the_api() -> None:
    validator = pytest.importorskip(
        "kubernetes_validate", reason="PyPI's kubernetes-validate is not installed"
    )
    for found in rendered():
        validator.validate(found, VERSION, strict=True)


def test_each_process_takes_the_settings_that_its_pod_gives_it() -> None:
    maps = {found["metadata"]["name"]: found["data"] for found in of_kind("ConfigMap")}
    seen = set()
    for found, container in containers():
        variables = {"POD_NAME": "x-0", "POD_NAMESPACE": "n", "POD_IP": "10.0.0.1"}
        for source in container.get("envFrom", []):
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
        process = words[2]
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


def test_each_pod_may_little_is_bounded_and_is_ready_only_while_it_serves() -> None:
    for found, container in containers():
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
        written = {mount["name"] for mount in container["volumeMounts"]}
        claims = {one["metadata"]["name"] for one in found["spec"].get("volumeClaimTemplates", [])}
        assert written == claims | {volume["name"] for volume in pod["volumes"]}
    budgets = {
        (b["metadata"]["namespace"], b["metadata"]["name"]) for b in of_kind("PodDisruptionBudget")
    }
    sets = {
        (one["metadata"]["namespace"], one["metadata"]["name"])
        for one, _ in containers()
        if one["metadata"]["name"] in ("broker", "zookeeper")
    }
    assert budgets == sets
    assert len(of_kind("NetworkPolicy")) == 2


def test_no_two_brokers_have_one_id() -> None:
    ids = []
    for found, container in containers():
        first = [one["value"] for one in container["env"] if one["name"] == "FIRST_BROKER_ID"]
        ids += [int(n) + i for n in first for i in range(found["spec"]["replicas"])]
    assert sorted(ids) == [1, 2, 3, 11, 12]
