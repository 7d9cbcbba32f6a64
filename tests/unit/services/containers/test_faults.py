"""deploy/docker/faults.py, which `make wan` runs in the link's container, against a proxy."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from kafka2011.runtime.metrics import MetricsServer
from kafka2011.services.proxy.app import change_from
from kafka2011.services.proxy.config import ProxyConfig, parse_routes
from kafka2011.services.proxy.proxy import Proxy
from tests import ROOT
from tests.support.commands import execute

SCRIPT = (ROOT / "deploy/docker/faults.py").read_text(encoding="utf-8")


@pytest.fixture
def url() -> Iterator[str]:
    """Of a proxy's faults."""
    config = ProxyConfig(routes=parse_routes("broker-1=127.0.0.1:0>127.0.0.1:1"))
    with Proxy(config) as proxy:
        actions = {"/faults": lambda body: change_from(proxy, body)}
        server = MetricsServer(CollectorRegistry(), lambda: True, actions=actions)
        with contextlib.closing(server):
            yield f"http://{server.address}/faults"


def change(faults: str, url: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """As the Makefile does: the script on standard input."""
    words = [sys.executable, "-I", "-", f'{{"faults": {faults}}}', url]
    return execute(words, text=SCRIPT, status=status)


def reason_against(faults: str, url: str) -> str:
    """The reason, on one line, why the link was not changed."""
    done = change(faults, url, status=2)
    (line,) = done.stderr.splitlines()
    prefix = "kafka2011: the link was not changed: "
    assert (done.stdout, line[: len(prefix)]) == ("", prefix)
    return line.removeprefix(prefix)


def test_a_change_prints_the_state_of_the_link(url: str) -> None:
    done = change('{"cut": true}', url)
    assert json.loads(done.stdout)["routes"]["broker-1"]["faults"]["cut"] is True
    assert done.stderr == ""


def test_what_the_link_refuses_is_one_line_with_its_reason(url: str) -> None:
    assert "property name" in reason_against("{cut: true}", url)
    assert "unknown fault 'cutt'" in reason_against('{"cutt": true}', url)
    assert "cut must be true or false" in reason_against('{"cut": 1}', url)


def test_a_link_that_does_not_answer_is_one_line() -> None:
    with socket.socket() as silent:  # bound, so that no other process listens there
        silent.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{silent.getsockname()[1]}/faults"
        assert "refused" in reason_against("{}", away)
