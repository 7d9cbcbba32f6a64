"""What a ZooKeeper server is started with."""

import re
from pathlib import Path

import pytest

from kafka2011.runtime.config import ConfigError, load, parse_properties
from kafka2011.services.zookeeper import launch
from kafka2011.services.zookeeper.config import ZooKeeperConfig


def configured(*overrides: str) -> ZooKeeperConfig:
    return load(ZooKeeperConfig, overrides=list(overrides), environment={})[0]


def test_missing_java_is_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(launch.JavaMissing, match=r"^.*apt-get install.*\Z"):
        launch.find_java()


def test_java_home_wins_over_path_and_is_refused_without_java(tmp_path: Path) -> None:
    with pytest.raises(launch.JavaMissing, match="no bin/java"):
        launch.find_java(str(tmp_path))
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    assert launch.find_java(str(tmp_path)) == java


def test_class_path_takes_the_needed_jars_only(tmp_path: Path) -> None:
    for name in ("slf4j-api-2.0.17.jar", "spark-core_2.13.jar", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(launch.JarsMissing, match=r"no zookeeper-\*\.jar"):
        launch.find_jars(str(tmp_path))
    (tmp_path / "zookeeper-3.9.5.jar").touch()
    names = [jar.name for jar in launch.find_jars(str(tmp_path))]
    assert names == ["slf4j-api-2.0.17.jar", "zookeeper-3.9.5.jar"]


def test_zoo_cfg_keeps_the_server_off_the_network_and_silent() -> None:
    found = parse_properties(launch.zoo_cfg(ZooKeeperConfig(data_dir=Path("/data/zk")), 2182))
    wanted = {
        "clientPort": "2182",
        "clientPortAddress": "127.0.0.1",
        "dataDir": "/data/zk/data",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,ruok",
    }
    assert {name: found.get(name) for name in wanted} == wanted
    assert "server.1" not in found


@pytest.mark.parametrize(("purges", "hours"), [(True, "1"), (False, "0")])
def test_old_snapshots_are_removed_unless_the_data_is_only_read(purges: bool, hours: str) -> None:
    found = parse_properties(launch.zoo_cfg(ZooKeeperConfig(), 2182, purges=purges))
    assert found["autopurge.purgeInterval"] == hours


def test_any_directory_can_be_the_servers() -> None:
    place = "/größer mit Raum/a\\b/\u6570\u636e"
    text = launch.zoo_cfg(ZooKeeperConfig(snapshot_dir=Path(place)), 2182)
    assert text.isascii(), "Java reads the file as ISO 8859-1"
    assert parse_properties(text)["dataDir"] == place


def test_zookeepers_own_names_hold_in_a_file_and_the_options_win(tmp_path: Path) -> None:
    file = tmp_path / "zookeeper.properties"  # as in 0.7's config/
    file.write_text(f"dataDir={tmp_path}/zookeeper\nclientPort=2191\nmaxClientCnxns=0\n")
    config, warnings = load(ZooKeeperConfig, file=file, environment={})
    found = parse_properties(launch.zoo_cfg(config, config.client_port))
    assert (found["dataDir"], found["clientPort"], found["maxClientCnxns"], warnings) == (
        f"{tmp_path}/zookeeper",
        "2191",
        "0",
        [],
    )
    assert config.conf_dir == tmp_path / "zookeeper" / "conf"
    config, _ = load(ZooKeeperConfig, file=file, overrides=["zk.client.port=2192"], environment={})
    assert config.client_port == 2192
    with pytest.raises(ConfigError, match="unknown setting"):
        configured("clientPort=2191")


def test_an_ensemble_names_all_its_servers() -> None:
    config = configured("zk.ensemble=1=a:2888:3888,2=b:2888:3888", "zk.server.id=2")
    found = parse_properties(launch.zoo_cfg(config, 2181))
    assert (found["server.1"], found["server.2"]) == ("a:2888:3888", "b:2888:3888")


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        ("zk.ensemble=a:1:2", "zk.ensemble"),
        ("zk.ensemble=0=a:1:2", "zk.ensemble"),
        ("zk.ensemble=1=a:1", "zk.ensemble"),
        ("zk.ensemble=x=a:1:2", "zk.ensemble"),
        ("zk.ensemble=1=a:b:c", "zk.ensemble"),
        ("zk.ensemble=1=a:1:2 zk.server.id=3", "zk.server.id=3"),
        (
            "zk.session.timeout.min.ms=9000 zk.session.timeout.max.ms=8000",
            "zk.session.timeout.min.ms",
        ),
    ],
)
def test_bad_settings_are_refused(overrides: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(setting)):
        configured(*overrides.split())
