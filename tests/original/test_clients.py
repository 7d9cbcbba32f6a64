"""The original's clients with our brokers, and ours with the original's broker, in one cluster.

Brokers 1 and 2 are ours, broker 3 is the original's; all stand in the same ZooKeeper.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka2011.producer import Producer
from tests.original.jvm import Jvm, OriginalBroker
from tests.support.brokers import RunningBroker, start_broker
from tests.support.commands import KAFKA2011, RunningProcess, run
from tests.support.waiting import wait_until

PRODUCER = "kafka.producer.ConsoleProducer"
CONSUMER = "kafka.consumer.ConsoleConsumer"
SETTINGS = {"num_partitions": 2, "log_default_flush_interval_ms": 200}
LINES = 2000


@dataclass
class Cluster:
    """Two brokers of ours and one of the original's behind `zk`."""

    jvm: Jvm
    directory: Path
    zk: str
    ours: list[RunningBroker]
    original: OriginalBroker

    def produce_originally(self, topic: str, lines: list[str], *options: str) -> None:
        text = "".join(f"{line}\n" for line in lines).encode()
        arguments = ("--zookeeper", self.zk, "--topic", topic, *options)
        with self.jvm.start(PRODUCER, *arguments, text=text):  # it does not end by itself
            wait_until(lambda: set(lines) <= set(self.consumed(topic)), "what the original sent")

    def produce(self, topic: str, lines: list[str], codec: str = "0") -> None:
        """Through ZooKeeper, to all three brokers; of the original's, only offsets show
        what is durable."""
        with Producer(
            zk_connect=self.zk, compression_codec=codec, flush_method="offsets"
        ) as producer:
            for start in range(0, len(lines), 20):  # each set goes to a partition that is drawn
                producer.send(topic, [line.encode() for line in lines[start : start + 20]])

    def consume_originally(self, topic: str, *options: str) -> RunningProcess:
        """The original consumer, from the beginning."""
        words = ("--zookeeper", self.zk, "--topic", topic, "--from-beginning", *options)
        return self.jvm.start(CONSUMER, *words)

    def consume(self, topic: str, *options: str) -> RunningProcess:
        words = [*KAFKA2011, "console-consumer", "--zookeeper", self.zk, "--topic", topic, *options]
        output = self.directory / f"consumer-{topic}{'-'.join(options)}.out"
        output.unlink(missing_ok=True)
        return RunningProcess(words, output.with_suffix(".err"), output=output)

    def consumed(self, topic: str) -> Counter[str]:
        """Every line of the topic, read by our consumer."""
        options = ("--from-beginning", "--consumer-timeout-ms", "3000")
        with self.consume(topic, *options) as program:
            program.wait(60)
            return Counter(program.lines())

    def owners(self, group: str) -> tuple[set[str], str]:
        """The owners of the group's partitions, and all that the command printed."""
        words = ("groups", "describe", group, "--zookeeper", self.zk, "--json")
        state = run(*words, status=None).stdout
        return set(re.findall(r'"owner": *"([^"]+)"', state)), state


def numbered(*words: str) -> list[str]:
    return [f"{word} {number}" for word in words for number in range(LINES)]


@pytest.fixture
def cluster(jvm: Jvm, zk_connect: str, tmp_path: Path) -> Iterator[Cluster]:
    with (
        start_broker(tmp_path, 1, zk_connect, **SETTINGS) as first,
        start_broker(tmp_path, 2, zk_connect, **SETTINGS) as second,
        jvm.broker(tmp_path / "original", 3, zk_connect=zk_connect, **SETTINGS) as original,
    ):
        yield Cluster(jvm, tmp_path, zk_connect, [first, second], original)


@pytest.mark.parametrize("codec", ["0", "1", "2"])
def test_each_reads_what_the_other_wrote(cluster: Cluster, codec: str) -> None:
    options = ("--compress",) if codec == "1" else ()
    cluster.produce("both", numbered("ours"), codec)
    cluster.produce_originally("both", numbered("original"), *options)
    expected = Counter(numbered("ours", "original"))
    with cluster.consume_originally("both", "--consumer-timeout-ms", "5000") as program:
        program.wait(90)
        assert Counter(program.lines()) == expected
    assert cluster.consumed("both") == expected


def test_one_group_of_both_kinds_shares_a_topic(cluster: Cluster) -> None:
    # Partitions that appear later would be begun at their end by ours.
    cluster.produce("shared", numbered("first"))

    def split(*programs: RunningProcess) -> Counter[str]:
        lines = (line for program in programs for line in program.lines())
        return Counter(line for line in lines if line.startswith("split"))

    def wait_for_owners(count: int) -> None:
        wait_until(
            lambda: len(cluster.owners("together")[0]) == count,
            lambda: cluster.owners("together")[1],
        )

    with (
        cluster.consume_originally("shared", "--group", "together") as original,
        cluster.consume("shared", "--group", "together") as ours,
    ):
        wait_for_owners(2)
        cluster.produce("shared", numbered("split"))
        expected = Counter(numbered("split"))
        wait_until(lambda: split(original, ours) == expected, "every line once, at one of both")
        assert split(original)
        assert split(ours)
        original.kill()
        wait_for_owners(1)
        cluster.produce("shared", numbered("taken over"))
        expected = Counter(numbered("taken over"))
        wait_until(lambda: set(expected) <= set(ours.lines()), "ours has taken over")


def test_each_broker_serves_the_other_s_log_directory(cluster: Cluster) -> None:
    cluster.produce("moved", numbered("ours"), "2")
    cluster.produce_originally("moved", numbered("original"))
    expected = cluster.consumed("moved")
    assert expected == Counter(numbered("ours", "original"))
    segments = sorted(cluster.ours[0].log_dir.glob("moved-*/*.kafka"))
    dump = cluster.jvm.run("kafka.tools.DumpLogSegments", *map(str, segments))
    assert "isvalid: true" in dump
    assert "isvalid: false" not in dump
    assert cluster.ours[0].stop() == 0
    cluster.original.process.stop()
    with (
        cluster.jvm.broker(cluster.ours[0].log_dir, 1, zk_connect=cluster.zk, **SETTINGS),
        start_broker(
            cluster.directory, 3, cluster.zk, log_dir=cluster.original.log_dir, **SETTINGS
        ),
    ):
        assert cluster.consumed("moved") == expected


def test_the_original_mirror_maker_fills_our_brokers(cluster: Cluster) -> None:
    cluster.produce("mirrored", numbered("ours"))
    cluster.produce_originally("mirrored", numbered("original"))
    target = f"{cluster.zk}-target"
    source_file, target_file = cluster.directory / "source", cluster.directory / "target"
    source_file.write_text(f"zk.connect={cluster.zk}\ngroupid=mirror\nautooffset.reset=smallest\n")
    target_file.write_text(f"zk.connect={target}\n")
    files = ("--consumer.config", str(source_file), "--producer.config", str(target_file))
    target_side = cluster.directory / "target-side"
    target_side.mkdir()
    expected = Counter(numbered("ours", "original"))
    with (
        start_broker(cluster.directory, 11, target) as broker,
        cluster.jvm.start("kafka.tools.MirrorMaker", *files, "--whitelist", "mirrored"),
    ):
        mirrored = Cluster(cluster.jvm, target_side, target, [broker], cluster.original)
        wait_until(lambda: mirrored.consumed("mirrored") == expected, "everything on the target")
