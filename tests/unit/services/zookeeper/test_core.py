"""What a ZooKeeper server is started with."""

from pathlib import Path

import pytest

from kafka2011.runtime.config import ConfigError, load, parse_properties
from kafka2011.services.zookeeper import core
from kafka2011.services.zookeeper.config import ZooKeeperConfig


def test_missing_java_is_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(core.JavaMissing) as caught:
        core.find_java()
    assert "apt-get install" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_java_home_without_java_is_refused_even_when_path_has_one(tmp_path: Path) -> None:
    with pytest.raises(core.JavaMissing, match="no bin/java"):
        core.find_java(str(tmp_path))


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    assert core.find_java(str(tmp_path)) == java


def test_class_path_takes_the_needed_jars_only(tmp_path: Path) -> None:
    for name in ("zookeeper-3.9.5.jar", "slf4j-api-2.0.17.jar", "spark-core_2.13.jar", "notes.txt"):
        (tmp_path / name).touch()
    names = [jar.name for jar in core.find_jars(str(tmp_path))]
    assert names == ["slf4j-api-2.0.17.jar", "zookeeper-3.9.5.jar"]


def test_directory_without_zookeeper_is_refused(tmp_path: Path) -> None:
    with pytest.raises(core.JarsMissing, match=r"no zookeeper-\*\.jar"):
        core.find_jars(str(tmp_path))


def test_zoo_cfg_keeps_the_server_off_the_network_and_silent() -> None:
    config = ZooKeeperConfig(data_dir=Path("/data/zk"))
    found = parse_properties(core.zoo_cfg(config, 2182))
    assert found["clientPort"] == "2182"
    assert found["clientPortAddress"] == "127.0.0.1"
    assert found["dataDir"] == "/data/zk/data"
    assert found["admin.enableServer"] == "false"
    assert found["4lw.commands.whitelist"] == "srvr,ruok"


def test_session_bounds_the_wrong_way_round_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"zk\.session\.timeout\.min\.ms"):
        load(
            ZooKeeperConfig,
            overrides=["zk.session.timeout.min.ms=9000", "zk.session.timeout.max.ms=8000"],
            environment={},
        )


def test_an_ensemble_names_all_its_servers() -> None:
    config, _ = load(
        ZooKeeperConfig,
        overrides=["zk.ensemble=1=a:2888:3888,2=b:2888:3888", "zk.server.id=2"],
        environment={},
    )
    found = parse_properties(core.zoo_cfg(config, 2181))
    assert (found["server.1"], found["server.2"]) == ("a:2888:3888", "b:2888:3888")
    assert "server.1" not in core.zoo_cfg(ZooKeeperConfig(), 2181)


@pytest.mark.parametrize("text", ["a:1:2", "0=a:1:2", "1=a:1", "x=a:1:2", "1=a:b:c"])
def test_a_bad_ensemble_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"zk\.ensemble"):
        load(ZooKeeperConfig, overrides=[f"zk.ensemble={text}"], environment={})


def test_a_server_must_be_in_its_ensemble() -> None:
    overrides = ["zk.ensemble=1=a:1:2", "zk.server.id=3"]
    with pytest.raises(ConfigError, match=r"zk\.server\.id=3"):
        load(ZooKeeperConfig, overrides=overrides, environment={})
