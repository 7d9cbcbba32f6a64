"""deploy/docker/faults.py, which `make wan` runs in the link's container, against a proxy."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kafka2011.services.proxy.app import change_from
from kafka2011.services.proxy.config import ProxyConfig, parse_routes
from kafka2011.services.proxy.proxy import Proxy
from tests import ROOT

SCRIPT = ROOT / "deploy/docker/faults.py"


@pytest.fixture
def url() -> Iterator[str]:
    """Of a server that answers as the proxy does."""
    config = ProxyConfig(routes=parse_routes("broker-1=127.0.0.1:0>127.0.0.1:1"))
    with Proxy(config) as proxy:

        class Page(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, _, answer = change_from(proxy, body)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        with HTTPServer(("127.0.0.1", 0), Page) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield f"http://127.0.0.1:{server.server_port}/faults"
            server.shutdown()
            thread.join()


def ask(faults: str, url: str) -> subprocess.CompletedProcess[str]:
    """As the Makefile does: the script on standard input."""
    with SCRIPT.open(encoding="utf-8") as script:
        return subprocess.run(
            [sys.executable, "-I", "-", f'{{"faults": {faults}}}', url],
            stdin=script,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def test_a_change_prints_the_state_of_the_link(url: str) -> None:
    done = ask('{"cut": true}', url)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["routes"]["broker-1"]["faults"]["cut"] is True


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ("{cut: true}", "property name"),
        ('{"cutt": true}', "unknown fault 'cutt'"),
        ('{"cut": 1}', "cut must be true or false"),
    ],
)
def test_what_the_link_refuses_is_one_line_with_its_reason(
    url: str, faults: str, reason: str
) -> None:
    done = ask(faults, url)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kafka2011: the link was not changed: ")
    assert reason in line


def test_a_link_that_does_not_answer_is_one_line() -> None:
    with socket.socket() as silent:  # bound, so that no other process listens there
        silent.bind(("127.0.0.1", 0))
        done = ask("{}", f"http://127.0.0.1:{silent.getsockname()[1]}/faults")
    assert done.returncode == 2
    assert "refused" in done.stderr
    assert len(done.stderr.splitlines()) == 1
