"""The operator's commands over a real cluster: console-consumer, topics, groups."""

import json
from collections.abc import Iterator

import pytest

from kafka2011.coordination import paths
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests.support.clusters import Cluster
from tests.support.commands import run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def brokers(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    connect = f"{zookeeper.host}:{zookeeper.port}/commands"
    with Cluster(connect, tmp_path_factory.mktemp("brokers"), [1, 2]) as made:
        made.write("clicks", 5)
        made.write("views", 3, codec=1)
        wait_until(lambda: len(made.partitions("views")) == 4, "the topics' registration")
        yield made


def console(brokers: Cluster, *words: str, status: int = 0) -> list[str]:
    words = ("--zookeeper", brokers.zk_connect, "--set", "zk.connectiontimeout.ms=20000", *words)
    return run("console-consumer", *words, status=status).stdout.splitlines()


def test_from_beginning_prints_payloads_and_leaves_nothing_behind(brokers: Cluster) -> None:
    lines = console(
        brokers, "--topic", "clicks", "--from-beginning", "--consumer-timeout-ms", "3000"
    )
    assert len(lines) == 20
    assert all(line.startswith("clicks|") for line in lines)
    groups = brokers.registry.children(paths.CONSUMERS)
    assert not [name for name in groups if name.startswith("console-consumer-")]


def test_a_named_group_goes_on_where_it_was(brokers: Cluster) -> None:
    words = ("--topic", "clicks", "--group", "named", "--consumer-timeout-ms", "4000")
    first = console(brokers, *words, "--from-beginning", "--max-messages", "7")
    rest = console(brokers, *words)
    assert len(first) == 7
    assert len(set(first + rest)) == len(first + rest) == 20
    again = console(brokers, *words, "--from-beginning")
    assert sorted(again) == sorted(first + rest)


def test_filters_formats_and_properties(brokers: Cluster) -> None:
    both = ("--from-beginning", "--consumer-timeout-ms", "3000")
    lines = console(brokers, "--whitelist", "vi.*", "--json", *both)
    assert {json.loads(line)["topic"] for line in lines} == {"views"}
    assert len(lines) == 12
    lines = console(brokers, "--blacklist", "vi.*", "--formatter", "checksum", *both)
    assert len(lines) == 20
    assert all(line.startswith("checksum:") for line in lines)
    shown = ("print.topic=true", "print.partition=true", "print.offset=true")
    options = [word for text in shown for word in ("--property", text)]
    line = console(brokers, "--topic", "views", *options, "--max-messages", "1", *both)[0]
    topic, partition, offset, payload = line.split("\t")
    assert (topic, payload[:6]) == ("views", "views|")
    assert partition in {"1-0", "1-1", "2-0", "2-1"}
    assert offset.isdecimal()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--topic", "a", "--whitelist", "b"),
        ("--whitelist", "("),
        ("--topic", "a", "--property", "nonsense=1"),
        ("--topic", "a", "--formatter", "xml"),
        ("--topic", "a", "--group", "a/b"),
    ],
)
def test_wrong_options_are_one_line_and_status_2(brokers: Cluster, words: tuple[str, ...]) -> None:
    done = run("console-consumer", "--zookeeper", brokers.zk_connect, *words, status=2)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_no_zookeeper_is_one_line_and_status_1() -> None:
    done = run("topics", "list", "--zookeeper", "127.0.0.1:1", status=1)
    assert len(done.stderr.strip().splitlines()) == 1
    words = ("--topic", "t", "--set", "zk.connectiontimeout.ms=300")
    done = run("console-consumer", "--zookeeper", "127.0.0.1:1", *words, status=1)
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_topics(brokers: Cluster) -> None:
    zookeeper = ("--zookeeper", brokers.zk_connect)
    assert run("topics", "list", *zookeeper).stdout == "clicks\nviews\n"
    assert json.loads(run("topics", "list", *zookeeper, "--json").stdout) == ["clicks", "views"]
    found = json.loads(run("topics", "describe", *zookeeper, "--json", "clicks").stdout)
    ends = brokers.ends("clicks")
    assert [(one["broker"], one["partition"]) for one in found] == [*ends]
    assert [(one["start"], one["end"], one["size"]) for one in found] == [
        (0, end, end) for end in ends.values()
    ]
    table = run("topics", "describe", *zookeeper).stdout
    assert "views" in table
    assert "1,050" in table
    assert "no topic" in run("topics", "describe", *zookeeper, "nosuch", status=1).stderr


def test_groups(brokers: Cluster) -> None:
    words = ("--topic", "clicks", "--group", "shown", "--consumer-timeout-ms", "3000")
    console(brokers, *words, "--from-beginning")
    brokers.write("clicks", 1)
    zookeeper = ("--zookeeper", brokers.zk_connect)
    assert "shown" in run("groups", "list", *zookeeper).stdout.split()
    found = json.loads(run("groups", "describe", *zookeeper, "shown", "--json").stdout)
    assert found["members"] == {}
    assert [(one["owner"], one["offset"], one["lag"]) for one in found["partitions"]] == [
        (None, 1050, 210)
    ] * 4
    assert "none" in run("groups", "describe", *zookeeper, "shown").stdout
    assert "no group" in run("groups", "describe", *zookeeper, "nosuch", status=1).stderr
