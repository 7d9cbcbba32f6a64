"""The mirror through TLS, as docs/mirror.md sets it up: stunnel at both ends, each of which knows
the other's certificate."""

import contextlib
import re
import shutil
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.clusters import datacenters
from tests.support.commands import RunningProcess, execute, held_port
from tests.support.mirrors import Mirrors, check_copies
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not shutil.which("stunnel"), reason="stunnel is not installed"),
]


def certificate(directory: Path, name: str) -> None:
    """NAME.pem with certificate and key, NAME.crt with the certificate alone."""
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"]
    files = "-keyout", directory / f"{name}.key", "-out", directory / f"{name}.crt"
    execute([*words, f"/CN={name}", *files])
    both = (directory / f"{name}.crt").read_text() + (directory / f"{name}.key").read_text()
    (directory / f"{name}.pem").touch(0o600)
    (directory / f"{name}.pem").write_text(both)


def stunnel(number: int, directory: Path, addresses: Mapping[str, str]) -> RunningProcess:
    """One of the page's two files, with the addresses and the directory of this test."""
    text = (ROOT / "docs/mirror.md").read_text(encoding="utf-8")
    block = re.findall(r"```ini\n(.*?)```", text, re.DOTALL)[number]
    block = block.replace("/etc/stunnel", str(directory))
    for old, new in addresses.items():
        assert old in text
        block = re.sub(rf"= {re.escape(old)}$", f"= {new}", block, flags=re.MULTILINE)
    file = directory / f"{number}.conf"
    file.write_text(f"foreground = yes\npid =\n{block}")
    return RunningProcess(["stunnel", str(file)], directory / f"stunnel-{number}.log")


def test_the_mirror_copies_through_tls_and_none_without_a_certificate_comes_in(
    tmp_path: Path, zk_connect: str
) -> None:
    for name in ("live", "offline"):
        certificate(tmp_path, name)
    plain = {name: f"127.0.0.1:{held_port()}" for name in ("zookeeper", "broker")}
    secret = {name: f"127.0.0.1:{held_port()}" for name in ("zookeeper", "broker")}
    zookeeper, _, chroot = zk_connect.partition("/")
    with datacenters(zk_connect, tmp_path, [1], [11]) as (live, offline):
        broker = "{}:{}".format(*live.address(1))
        at_live = {"2281": secret["zookeeper"], "9292": secret["broker"]}
        at_live |= {"live1:2181": zookeeper, "live1:9092": broker}
        at_offline = {"127.0.0.1:2281": plain["zookeeper"], "127.0.0.1:9292": plain["broker"]}
        at_offline |= {"live1:2281": secret["zookeeper"], "live1:9292": secret["broker"]}
        with (
            stunnel(0, tmp_path, at_live) as one,
            stunnel(1, tmp_path, at_offline) as other,
            contextlib.closing(Mirrors(live, offline, tmp_path)) as mirrors,
        ):
            for process in (one, other):
                wait_until(lambda p=process: "Configuration successful" in p.log(), process.log)
            live.write(mirrors.topic, 200)
            mirrors.start(
                source_zk_connect=f"{plain['zookeeper']}/{chroot}-live",
                address_map=f"{broker}={plain['broker']}",
            )
            mirrors.wait_drained()
            assert check_copies(mirrors) == 0
            stranger = ssl.create_default_context()
            stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
            host, _, port = secret["broker"].partition(":")
            dialled = socket.create_connection((host, int(port)), 60)
            with pytest.raises(ssl.SSLError), stranger.wrap_socket(dialled) as connection:
                connection.recv(1)  # with TLS 1.3 the refusal comes behind the handshake
