"""`kafka2011 install-unit`: the units of the processes that docs/hosts.md sets up."""

import getpass
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kafka2011.cli import install_unit, systemd_unit
from kafka2011.cli.systemd_unit import KINDS, MARK
from tests.unit import text_of

BROKER = "brokerid=1\nhostname=live1\nlog.dir=/srv/kafka/logs\nzk.connect=live1:2181\n"


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with systemd: its units' directory. `tmp_path` and this clone may be anywhere."""
    units = tmp_path / "units"
    (tmp_path / "booted").mkdir()
    (tmp_path / "bin").mkdir()
    units.mkdir()
    systemctl = tmp_path / "bin" / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(install_unit, "UNITS", units)
    monkeypatch.setattr(install_unit, "BOOTED", tmp_path / "booted")
    monkeypatch.setattr(systemd_unit, "HIDDEN", ("/hidden",))
    return units


def install(tmp_path: Path, process: str, settings: str, *words: str) -> Result:
    file = tmp_path / f"{process}.properties"
    file.write_text(settings)
    return CliRunner().invoke(install_unit.app, [process, "--file", str(file), *words])


def settings_on_the_hosts_page() -> dict[str, str]:
    blocks = re.findall(r"```properties\n(.*?)```", text_of("docs/hosts.md"), re.DOTALL)
    return {block[2:].partition(".")[0]: block for block in blocks}


def test_systemd_takes_the_unit_of_every_process_on_the_hosts_page(tmp_path: Path) -> None:
    pages = settings_on_the_hosts_page()
    assert len(pages) > 6
    (tmp_path / "systemd").mkdir()
    for process, settings in {**pages, "proxy": "proxy.routes=127.0.0.1:1>live1:9092\n"}.items():
        done = install(tmp_path, process, settings, "--print")
        assert done.exit_code == 0, done.output
        assert f"bin/kafka2011 {process}" in done.stdout
        (tmp_path / "systemd" / f"kafka2011-{process}.service").write_text(done.stdout)
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    units = sorted((tmp_path / "systemd").iterdir())
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "kafka" in line]) == (
        0,
        [],
    )
    # 10 is a process that may do everything.
    exposed = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", units[0]]
    subprocess.run(exposed, check=True, capture_output=True)


def test_a_process_may_write_to_the_directories_of_its_settings_and_no_other(
    tmp_path: Path,
) -> None:
    printed = install(tmp_path, "broker", BROKER, "--print").stdout
    assert "\nReadWritePaths=/srv/kafka/logs /srv/kafka/logs-quarantine\n" in printed
    assert "\nRequiresMountsFor=/srv/kafka/logs /srv/kafka/logs-quarantine\n" in printed
    for below in ("logs", "/var/lib/kafka2011/logs"):
        printed = install(
            tmp_path, "broker", BROKER.replace("/srv/kafka/logs", below), "--print"
        ).stdout
        assert "ReadWritePaths" not in printed


def test_a_path_that_leaves_the_state_directory_is_one_outside(tmp_path: Path) -> None:
    settings = BROKER.replace("/srv/kafka/logs", "../../../data/logs")
    printed = install(tmp_path, "broker", settings, "--print").stdout
    assert "\nReadWritePaths=/data/logs /data/logs-quarantine\n" in printed


def test_a_broker_is_bounded_without_its_page_cache(tmp_path: Path) -> None:
    settings = f"{BROKER}buffered.request.bytes.max=100000000\n"
    printed = install(tmp_path, "broker", settings, "--print").stdout
    assert f"\nLimitDATA={512 * 2**20 + 200_000_000}\n" in printed
    assert "MemoryMax" not in printed
    assert all("MemoryMax" in kind.limit for name, kind in KINDS.items() if name != "broker")


def test_the_unit_is_written_and_read_by_systemd_and_again_the_same(
    tmp_path: Path, host: Path
) -> None:
    settings = BROKER.replace("/srv/kafka", str(tmp_path / "disk"))
    words = ("--name", "broker-7", "--user", getpass.getuser())
    for _ in range(2):
        done = install(tmp_path, "broker", settings, *words)
        assert done.exit_code == 0, done.output
        assert "systemctl enable --now kafka2011-broker-7\n" in done.stdout
        [unit] = host.iterdir()
        assert unit.name == "kafka2011-broker-7.service"
        assert unit.read_text() == install(tmp_path, "broker", settings, *words, "--print").stdout
    assert (tmp_path / "asked").read_text() == "daemon-reload\n" * 2
    assert {path.name for path in (tmp_path / "disk").iterdir()} == {"logs", "logs-quarantine"}


@pytest.mark.parametrize(
    ("settings", "words", "status", "said"),
    [
        ("brokerid=x\n", (), 2, "brokerid"),
        (BROKER.replace("/srv", "/hidden"), (), 2, "/hidden/kafka/logs is below /hidden"),
        (BROKER.replace("/srv", "/a b"), (), 2, "without blanks"),
        (BROKER, ("--name", "../x"), 2, "letters, digits"),
        (BROKER, ("--user", "nosuchuser"), 1, "useradd --system"),
        (BROKER, ("--user", "x\nExecStartPre=/bin/evil", "--print"), 2, "--user 'x\\nExec"),
        (BROKER, ("--user", "", "--print"), 2, "--user ''"),
        (BROKER.replace("/srv", "/srv/../hidden"), ("--print",), 2, "is below /hidden"),
    ],
)
def test_what_could_not_run_is_refused_in_one_line(
    tmp_path: Path, settings: str, words: tuple[str, ...], status: int, said: str
) -> None:
    done = install(tmp_path, "broker", settings, *words)
    assert (done.exit_code, done.stderr.count("\n")) == (status, 1), done.output
    assert said in done.stderr
    assert list((tmp_path / "units").iterdir()) == []


def test_it_replaces_no_unit_of_another_and_needs_systemd(tmp_path: Path, host: Path) -> None:
    unit = host / "kafka2011-broker.service"
    unit.write_text("[Unit]\n")
    user = ("--user", getpass.getuser())
    assert "was not made by this command" in install(tmp_path, "broker", BROKER, *user).stderr
    assert unit.read_text() == "[Unit]\n"
    (tmp_path / "booted").rmdir()
    done = install(tmp_path, "broker", BROKER)
    assert done.exit_code == 1
    assert "systemd does not run this host" in done.stderr
    assert install(tmp_path, "broker", BROKER, "--print").stdout.startswith(MARK)
    assert "no process 'brokr'" in install(tmp_path, "brokr", BROKER).stderr
