"""What an error of the operating system is to a reader: one line without its number."""

import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka2011.runtime.os_errors import CannotListen, first_line, listening_on, reason_of
from tests.conftest import Run


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (PermissionError(13, "Permission denied", "/data"), "/data: Permission denied"),
        (TimeoutError(), "TimeoutError"),
        (TimeoutError("timed out"), "timed out"),
        (http.client.RemoteDisconnected("no response"), "no response"),
        (OSError("of Arrow: the object is not there"), "of Arrow: the object is not there"),
        (ValueError("any other"), "any other"),
    ],
)
def test_the_reason_has_no_number_and_names_the_file(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_an_address_that_cannot_be_had_says_which_why_and_what_to_do(taken_port: int) -> None:
    with (
        pytest.raises(CannotListen) as refused,
        listening_on("127.0.0.1", taken_port, "metrics.port"),
    ):
        socket.create_server(("127.0.0.1", taken_port))
    assert str(refused.value) == (
        f"cannot listen on 127.0.0.1:{taken_port}: Address already in use; end the process that "
        "uses it (`ss -ltnp` lists them), or set metrics.port to another port"
    )
    assert reason_of(refused.value) == str(refused.value)
    for unusable in (OSError(99, "-"), OSError(13, "-"), socket.gaierror(-2, "Unknown name")):
        line = str(CannotListen(unusable, "host", 80, "port"))
        assert line.startswith("cannot listen on host:80: "), line
        assert "Errno" not in line


def test_a_first_line_is_one_line_without_the_colours_of_a_terminal() -> None:
    error = RuntimeError("\x1b[31mcannot put\x1b[0m part 1\n  caused by: timeout\n")
    assert first_line(error) == "cannot put part 1"
    assert first_line(RuntimeError("\n")) == "RuntimeError"


@pytest.mark.parametrize(
    "words",
    [
        "audit serve --set live.zk.connect=127.0.0.1:1 --set data.dir=books "
        "--set metrics.port={port}",
        "broker --set brokerid=1 --set log.dir=logs --set enable.zookeeper=false --set port={port}",
        "dashboard --set live.zk.connect=127.0.0.1:1 --set dashboard.port={port}",
        "dashboard --set live.zk.connect=127.0.0.1:1 --port 0 --set metrics.port={port}",
        "proxy --routes 127.0.0.1:0>127.0.0.1:1 --set metrics.port={port}",
        "proxy --routes 127.0.0.1:{port}>127.0.0.1:1",
        "registry --data-dir registry --port {port}",
        "registry --data-dir registry --port 0 --set metrics.port={port}",
        "schedule jobs --set metrics.port={port}",
        "tail --topic t --broker-list 0:127.0.0.1:1 --state state lines --set metrics.port={port}",
    ],
)
def test_a_command_that_cannot_serve_ends_with_one_line(
    words: str, taken_port: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").write_text("every 10m audit\n")
    done = run(*words.format(port=taken_port).split(), status=1)
    last = done.err.splitlines()[-1]
    assert last.startswith(f"kafka2011 {words.split(maxsplit=1)[0]}: cannot listen on "), done.err
    assert f":{taken_port}: Address already in use; " in last
    assert "Traceback" not in done.err
