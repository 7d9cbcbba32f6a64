"""The original's clients with our brokers, and ours with the original's broker, in one cluster.

Brokers 1 and 2 are ours, broker 3 is the original's; all stand in the same ZooKeeper.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka2011.producer import Producer
from tests.original.jvm import Jvm, RunningProgram, free_port
from tests.support.brokers import RunningBroker, start_broker
from tests.support.commands import KAFKA2011, run
from tests.support.waiting import wait_until

PRODUCER = "kafka.producer.ConsoleProducer"
CONSUMER = "kafka.consumer.ConsoleConsumer"
SETTINGS = {"num.partitions": 2, "log.default.flush.interval.ms": 200}
LINES = 2000


@dataclass
class Cluster:
    """Two brokers of ours and one of the original's behind `zk`."""

    jvm: Jvm
    directory: Path
    zk: str
    ours: list[RunningBroker]
    original: RunningProgram
    original_log_dir: Path

    def produce_originally(self, topic: str, lines: Iterable[str], *options: str) -> None:
        lines = list(lines)
        text = "".join(f"{line}\n" for line in lines).encode()
        arguments = ("--zookeeper", self.zk, "--topic", topic, *options)
        with self.jvm.start(PRODUCER, *arguments, text=text):  # it does not end by itself
            wait_until(
                lambda: set(lines) <= set(self.consumed(topic)), "what the original sent", 60
            )

    def produce(self, topic: str, lines: Iterable[str], codec: str = "0") -> None:
        """Through ZooKeeper, to all three brokers; of the original's, only offsets show
        what is durable."""
        with Producer(
            zk_connect=self.zk, compression_codec=codec, flush_method="offsets"
        ) as producer:
            for some in batched(lines, 20):  # each goes to a partition that is drawn
                producer.send(topic, [line.encode() for line in some])

    def consume_originally(self, topic: str, group: str = "") -> RunningProgram:
        """The original consumer, from the beginning; it ends when nothing came for 5 s, but not
        as a member of `group`."""
        how = ("--group", group) if group else ("--consumer-timeout-ms", "5000")
        return self.jvm.start(
            CONSUMER, "--zookeeper", self.zk, "--topic", topic, "--from-beginning", *how
        )

    def consume(self, topic: str, *options: str) -> RunningProgram:
        words = [*KAFKA2011, "console-consumer", "--zookeeper", self.zk, "--topic", topic, *options]
        output = self.directory / f"consumer-{topic}{'-'.join(options)}.out"
        output.unlink(missing_ok=True)
        return RunningProgram(words, output)

    def consumed(self, topic: str) -> Counter[str]:
        """Every line of the topic, read by our consumer."""
        options = ("--from-beginning", "--consumer-timeout-ms", "3000")
        with self.consume(topic, *options) as program:
            program.wait(60)
            return Counter(program.lines())


def numbered(word: str) -> list[str]:
    return [f"{word} {number}" for number in range(LINES)]


def batched(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    waiting = list(lines)
    for start in range(0, len(waiting), size):
        yield waiting[start : start + size]


def split_lines(program: RunningProgram) -> list[str]:
    return [line for line in program.lines() if line.startswith("split")]


@pytest.fixture
def cluster(jvm: Jvm, zk_connect: str, tmp_path: Path) -> Iterator[Cluster]:
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    log_dir = tmp_path / "original"
    with (
        start_broker(tmp_path, 1, zk_connect, **settings) as first,
        start_broker(tmp_path, 2, zk_connect, **settings) as second,
        jvm.broker(
            {
                **SETTINGS,
                "brokerid": 3,
                "port": free_port(),
                "hostname": "127.0.0.1",
                "log.dir": log_dir,
                "zk.connect": zk_connect,
            }
        ) as original,
    ):
        yield Cluster(jvm, tmp_path, zk_connect, [first, second], original, log_dir)


@pytest.mark.parametrize("codec", ["0", "1", "2"])
def test_each_reads_what_the_other_wrote(cluster: Cluster, codec: str) -> None:
    options = ("--compress",) if codec == "1" else ()
    cluster.produce("both", numbered("ours"), codec)
    cluster.produce_originally("both", numbered("original"), *options)
    expected = Counter(numbered("ours") + numbered("original"))
    with cluster.consume_originally("both") as program:
        program.wait(90)
        assert Counter(program.lines()) == expected
    assert cluster.consumed("both") == expected


def test_one_group_of_both_kinds_shares_a_topic(cluster: Cluster) -> None:
    # Partitions that appear later would be begun at their end by ours.
    cluster.produce("shared", numbered("first"))
    with (
        cluster.consume_originally("shared", "together") as original,
        cluster.consume("shared", "--group", "together") as ours,
    ):

        def state() -> str:
            words = ("groups", "describe", "together", "--zookeeper", cluster.zk, "--json")
            return run(*words, status=None).stdout

        def owners() -> set[str]:
            return set(re.findall(r'"owner": *"([^"]+)"', state()))

        wait_until(lambda: len(owners()) == 2, state, 60)
        cluster.produce("shared", numbered("split"))
        wait_until(
            lambda: (
                Counter(split_lines(original)) + Counter(split_lines(ours))
                == Counter(numbered("split"))
            ),
            "every line once, at one of the two",
            60,
        )
        assert split_lines(original)
        assert split_lines(ours)
        original.kill()
        wait_until(lambda: len(owners()) == 1, state, 60)
        cluster.produce("shared", numbered("taken over"))
        wait_until(
            lambda: set(numbered("taken over")) <= set(ours.lines()), "ours has taken over", 60
        )


def test_each_broker_serves_the_other_s_log_directory(cluster: Cluster) -> None:
    cluster.produce("moved", numbered("ours"), "2")
    cluster.produce_originally("moved", numbered("original"))
    expected = cluster.consumed("moved")
    assert expected == Counter(numbered("ours") + numbered("original"))
    dump = cluster.jvm.run(
        "kafka.tools.DumpLogSegments",
        *map(str, sorted(cluster.ours[0].log_dir.glob("moved-*/*.kafka"))),
    )
    assert "isvalid: true" in dump
    assert "isvalid: false" not in dump
    assert cluster.ours[0].stop() == 0
    cluster.original.stop()
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with (
        cluster.jvm.broker(
            {
                **SETTINGS,
                "brokerid": 1,
                "port": free_port(),
                "hostname": "127.0.0.1",
                "log.dir": cluster.ours[0].log_dir,
                "zk.connect": cluster.zk,
            }
        ),
        start_broker(
            cluster.directory,
            3,
            cluster.zk,
            **{**settings, "log.dir": cluster.original_log_dir},
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
    with start_broker(cluster.directory, 11, target) as broker:
        mirrored = Cluster(
            cluster.jvm,
            cluster.directory / "target-side",
            target,
            [broker],
            cluster.original,
            cluster.original_log_dir,
        )
        mirrored.directory.mkdir()
        with cluster.jvm.start(
            "kafka.tools.MirrorMaker",
            "--consumer.config",
            str(source_file),
            "--producer.config",
            str(target_file),
            "--whitelist",
            "mirrored",
        ):
            wait_until(
                lambda: (
                    mirrored.consumed("mirrored")
                    == Counter(numbered("ours") + numbered("original"))
                ),
                "everything on the target",
                90,
            )
