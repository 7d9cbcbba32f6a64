"""`kafka2011 proxy` as a real process, controlled over HTTP."""

import http.client
import json
import socket
import urllib.error
from pathlib import Path

import pytest

from tests.support.commands import start_command
from tests.support.scripted_server import TcpTarget, receive_exactly
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.integration


def test_relays_takes_faults_and_stops_clean(tmp_path: Path) -> None:
    with TcpTarget(echo=True) as target:
        routes = f"r=127.0.0.1:0>127.0.0.1:{target.port}"
        settings = {"proxy.routes": routes, "proxy.control": "true", "metrics.port": 0}
        with start_command("proxy", settings, tmp_path / "log") as proxy:
            serving = proxy.wait_for_event("serving")
            host, _, port = str(serving["address"]).partition(":")
            metrics = http.client.HTTPConnection(*serving["metrics"].split(":"), timeout=DEADLINE_S)
            with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as client:
                client.sendall(b"through")
                assert receive_exactly(client, 7) == b"through"
                metrics.request(
                    "POST",
                    "/faults",
                    json.dumps({"faults": {"cut": True}}),
                    {"Content-Type": "application/json"},
                )
                assert metrics.getresponse().read().startswith(b"{")
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
            metrics.request("GET", "/routes")
            route = json.loads(metrics.getresponse().read())["routes"]["r"]
            assert route["faults"]["cut"] is True
            assert route["to_server"]["bytes"] == 7
            metrics.close()
            assert proxy.stop() == 0


def test_faults_cannot_be_set_where_they_were_not_switched_on(tmp_path: Path) -> None:
    settings = {"proxy.routes": "r=127.0.0.1:0>127.0.0.1:1", "metrics.port": 0}
    with start_command("proxy", settings, tmp_path / "log") as proxy:
        proxy.wait_for_event("serving")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            proxy.get("/faults", {"faults": {"cut": True}})
        assert proxy.get_json("/routes")["routes"]["r"]["faults"]["cut"] is False


def test_a_taken_address_is_said_in_one_line_with_status_1(tmp_path: Path) -> None:
    with TcpTarget() as taken:
        settings = {"proxy.routes": f"127.0.0.1:{taken.port}>127.0.0.1:1"}
        with start_command("proxy", settings, tmp_path / "log") as proxy:
            assert proxy.wait() == 1
            last = (tmp_path / "log").read_text().splitlines()[-1]
            assert last.startswith(f"kafka2011 proxy: cannot listen on 127.0.0.1:{taken.port}: ")


def test_a_bad_route_exits_2(tmp_path: Path) -> None:
    settings = {"proxy.routes": "nonsense"}
    with start_command("proxy", settings, tmp_path / "log") as proxy:
        assert proxy.wait() == 2
        assert "proxy.routes='nonsense'" in proxy.log()
