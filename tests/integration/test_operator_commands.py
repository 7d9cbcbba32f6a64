"""The operators' commands over a real cluster: consumers, topics, groups, offsets, tools.

`run` is the command in this process, where nothing of a process is at stake.
"""

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kafka2011.consumer.config import ConsumerConfig
from kafka2011.consumer.groups.connector import ConsumerConnector
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from kafka2011.events.primitives import long
from kafka2011.producer import Producer
from kafka2011.runtime.clock import now_ms
from kafka2011.services.warehouse.delta_table import WarehouseTable
from kafka2011.services.warehouse.load_commits import Load, LoadedRange, read_commits
from kafka2011.services.zookeeper.server import ZooKeeperServer
from tests import ROOT
from tests.conftest import Run
from tests.support.clusters import Cluster
from tests.support.commands import KAFKA2011, RunningProcess, execute
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

ENTRY = 210  # bytes of a message of 200 in the log
PARTITIONS = [BrokerPartition(broker, number) for broker in (1, 2) for number in (0, 1)]


@pytest.fixture(scope="module")
def cluster(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    connect = f"{zookeeper.host}:{zookeeper.port}/operator"
    with Cluster(connect, tmp_path_factory.mktemp("brokers"), [1, 2]) as made:
        made.write("clicks", 5)
        made.write("views", 3, codec=1)
        for topic in ("clicks", "views"):
            wait_until(lambda topic=topic: made.partitions(topic) == PARTITIONS, "registration")
        yield made


def member(cluster: Cluster, group: str, **settings: object) -> ConsumerConnector:
    settings = {
        "group_id": group,
        "zk_connect": cluster.zk_connect,
        "zk_connection_timeout_ms": 120_000,
        "consumer_timeout_ms": 120_000,
        **settings,
    }
    return ConsumerConnector(ConsumerConfig(**settings))


def consume_all(cluster: Cluster, group: str) -> None:
    """Leaves the group's offsets at the end of clicks."""
    with member(cluster, group) as made:
        [stream] = made.create_message_streams({"clicks": 1})["clicks"]
        for _ in range(4 * 5):
            next(stream)


def stored(cluster: Cluster, group: str) -> list[int | None]:
    found = []
    for partition in PARTITIONS:
        node = cluster.registry.get(paths.offset_path(group, "clicks", partition))
        found.append(int(node.value) if node is not None and node.value is not None else None)
    return found


def zk(cluster: Cluster) -> tuple[str, str]:
    return "--zookeeper", cluster.zk_connect


def server(cluster: Cluster) -> tuple[str, str]:
    return "--server", "kafka://{}:{}".format(*cluster.address(1))


# --- console-consumer -----------------------------------------------------------------------------


@pytest.fixture
def console(cluster: Cluster, run: Run) -> Callable[..., list[str]]:
    """`console(20, "--topic", ...)`: the first lines that a console consumer prints; with 0, those
    that it prints until none comes."""

    def lines(count: int, *words: str) -> list[str]:
        until = ("--max-messages", str(count), "--consumer-timeout-ms", "120000")
        until = until if count else ("--consumer-timeout-ms", "1000")
        words = (*until, "--set", "zk.connectiontimeout.ms=120000", *words)
        return run("console-consumer", *zk(cluster), *words).lines

    return lines


def test_from_beginning_prints_payloads_and_leaves_nothing_behind(
    cluster: Cluster, console: Callable[..., list[str]]
) -> None:
    lines = console(20, "--topic", "clicks", "--from-beginning")
    assert [line[:7] for line in lines] == ["clicks|"] * 20
    groups = cluster.registry.children(paths.CONSUMERS)
    assert not [name for name in groups if name.startswith("console-consumer-")]


def test_a_named_group_goes_on_where_it_was(console: Callable[..., list[str]]) -> None:
    # A partition that the first one had not come to has no offset yet: it begins at the smallest.
    words = ("--topic", "clicks", "--group", "named", "--set", "autooffset.reset=smallest")
    first = console(7, *words, "--from-beginning")
    rest = console(13, *words)
    assert console(0, *words) == [], "there is no more"
    assert len(first) == 7
    assert len(set(first + rest)) == len(first + rest) == 20
    again = console(20, *words, "--from-beginning")
    assert sorted(again) == sorted(first + rest)


def test_filters_formats_and_properties(console: Callable[..., list[str]]) -> None:
    lines = console(12, "--whitelist", "vi.*", "--json", "--from-beginning")
    assert [json.loads(line)["topic"] for line in lines] == ["views"] * 12
    lines = console(20, "--blacklist", "[^c].*", "--formatter", "checksum", "--from-beginning")
    assert [line[:9] for line in lines] == ["checksum:"] * 20
    shown = ("print.topic=true", "print.partition=true", "print.offset=true")
    options = [word for text in shown for word in ("--property", text)]
    line = console(1, "--topic", "views", *options, "--from-beginning")[0]
    topic, partition, offset, payload = line.split("\t")
    assert (topic, payload[:6]) == ("views", "views|")
    assert partition in {"1-0", "1-1", "2-0", "2-1"}
    assert offset.isdecimal()


def test_console_consumer_of_a_slip_waits_and_guesses(cluster: Cluster, run: Run) -> None:
    words = ("--topic", "veiws", "--consumer-timeout-ms", "100")
    said = run("console-consumer", *zk(cluster), *words, status=None).err
    hint = "there is no topic 'veiws'; did you mean views?"
    assert f"waiting for a first message: {hint}" in said


def test_status_shows_what_answers_when_one_zookeeper_is_away(cluster: Cluster, run: Run) -> None:
    done = run("status", *zk(cluster), "--zookeeper", "127.0.0.1:1", status=1)
    assert done.err.startswith("kafka2011: no answer from ZooKeeper at 127.0.0.1:1")
    assert "not shown, since its ZooKeeper does not answer: 127.0.0.1:1" in done.out
    assert "without owner" in done.out
    nothing = run("status", "--zookeeper", "127.0.0.1:1", status=1)
    assert not nothing.out


def test_no_zookeeper_is_one_line_and_status_1() -> None:
    words = ("--topic", "t", "--set", "zk.connectiontimeout.ms=300")
    for command in (("topics", "list"), ("console-consumer", *words)):
        done = execute([*KAFKA2011, *command, "--zookeeper", "127.0.0.1:1"], status=1)
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


# --- topics ---------------------------------------------------------------------------------------


def test_topics(cluster: Cluster, run: Run) -> None:
    listed = run("topics", "list", *zk(cluster)).lines
    assert listed == sorted(listed)
    assert {"clicks", "views"} <= set(listed)
    assert run("topics", "list", *zk(cluster), "--json").json == listed
    found = run("topics", "describe", *zk(cluster), "--json", "clicks").json
    assert [
        [one[name] for name in ("broker", "partition", "start", "end", "size")] for one in found
    ] == [[*partition, 0, end, end] for partition, end in cluster.ends("clicks").items()]
    table = run("topics", "describe", *zk(cluster)).out
    assert "views" in table
    assert "1,050" in table
    said = run("topics", "describe", *zk(cluster), "veiws", status=1).err
    assert "no topic 'veiws'; did you mean views?" in said
    said = run("groups", "validate", *zk(cluster), "nosuch", status=1).err
    assert "no group 'nosuch'; `groups list` names those there are" in said


def test_a_topic_is_made_everywhere_and_forgotten_only_when_no_broker_has_it(
    cluster: Cluster, run: Run
) -> None:
    for _ in range(2):  # again: it stays as it is
        made = run("topics", "create", *zk(cluster), "orders", "--json").json
        assert [(one["broker"], one["partition"]) for one in made] == PARTITIONS
        assert {(one["start"], one["end"]) for one in made} == {(0, 0)}
    assert "illegal" in run("topics", "create", *zk(cluster), "a/b", status=2).err
    delete = ("topics", "delete", *zk(cluster), "orders", "--yes")
    assert "has logs on broker 1, 2" in run(*delete, status=1).err

    # As its brokers leave it that were stopped, lost their logs, and were started again.
    registry, node = cluster.registry, paths.topic_path("gone")
    offset = paths.offset_path("readers", "gone", PARTITIONS[0])
    registry.create(node)
    registry.create(offset, b"700")
    words = ("topics", "delete", *zk(cluster), "gone")
    listed = run(*words, status=1)
    assert listed.lines == [paths.offsets_path("readers", "gone"), node]
    assert "nothing was removed" in listed.err
    assert registry.exists(offset)
    down = paths.process_path("live", "broker-9")
    registry.create(down, b'{"kind": "broker"}')
    assert "broker-9 is down and may have" in run(*words, "--yes", status=1).err
    assert "broker-9 is down: par" in run("topics", "describe", *zk(cluster), status=1).err
    registry.delete(down)
    run(*words, "--yes")
    assert not registry.exists(node)
    assert not registry.exists(offset)
    assert "no topic" in run(*words, status=1).err


# --- the warehouse's offsets ----------------------------------------------------------------------


def test_a_load_is_reset_to_the_start_of_the_log_that_is_there(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    schema = pa.schema([("n", pa.int64()), ("hour", pa.string())])
    table = WarehouseTable.open_or_create(tmp_path / "clicks", schema, "clicks")
    lost, other = PARTITIONS[0], PARTITIONS[1]
    table.commit(
        Load(
            "clicks", [LoadedRange(each, None, 0, 99 * ENTRY) for each in (lost, other)], [], {}, 1
        )
    )
    words = ("--set", f"zk.connect={cluster.zk_connect}", "--set", f"warehouse.dir={tmp_path}")
    run("load", "--reset", f"clicks/{lost.text}", *words)
    table.refresh()
    assert table.known_partitions("clicks") == {lost: 0, other: 99 * ENTRY}
    assert read_commits(tmp_path / "clicks", 1)[0].gaps == {lost: (99 * ENTRY, 0)}
    assert "never loaded" in run("load", "--reset", "other/1-0", *words, status=1).err
    assert "broker 7 is away" in run("load", "--reset", "clicks/7-0", *words, status=1).err


# --- offsets --------------------------------------------------------------------------------------


def test_offsets_are_exported_reset_and_imported_again(
    cluster: Cluster, run: Run, tmp_path: Path
) -> None:
    consume_all(cluster, "moved")
    shown = run("offsets", "get", *zk(cluster), "--group", "moved", "--json").json
    assert [(one["broker"], one["partition"], one["offset"]) for one in shown] == [
        (*partition, 5 * ENTRY) for partition in PARTITIONS
    ]
    file = tmp_path / "offsets.txt"
    run("offsets", "export", *zk(cluster), "--group", "moved", "--output-file", str(file))
    assert file.read_text() == "".join(
        f"/consumers/moved/offsets/clicks/{partition.text}:{5 * ENTRY}\n"
        for partition in PARTITIONS
    )
    reset = ("offsets", "reset", *zk(cluster), "--group", "moved", "--topic", "clicks", "--to")
    table = run(*reset, "earliest", "--dry-run").out
    assert "-1,050" in table
    assert stored(cluster, "moved") == [5 * ENTRY] * 4
    run(*reset, "earliest")
    assert stored(cluster, "moved") == [0] * 4
    both = file.read_text() + f"/consumers/another/offsets/clicks/1-0:{ENTRY}\n"
    file.write_text(both)
    run("offsets", "import", *zk(cluster), "--input-file", str(file), "--group", "moved")
    assert stored(cluster, "moved") == [5 * ENTRY] * 4
    assert stored(cluster, "another") == [None] * 4
    words = ("offsets", "import", *zk(cluster), "--input-file", str(file), "--group", "third")
    assert "no offsets of group 'third'" in run(*words, status=1).err
    run(*reset, "2011-06-12T09:30:00Z")  # older than every segment
    assert stored(cluster, "moved") == [0] * 4
    run(*reset, "latest")
    assert stored(cluster, "moved") == [5 * ENTRY] * 4


def test_an_offset_is_set_only_where_a_message_begins(cluster: Cluster, run: Run) -> None:
    words = ("--group", "single", "--topic", "clicks", "--partition", "2-1", "--create", "--to")
    run("offsets", "reset", *zk(cluster), *words, str(2 * ENTRY))
    assert stored(cluster, "single") == [None, None, None, 2 * ENTRY]
    done = run("offsets", "reset", *zk(cluster), *words, str(2 * ENTRY + 1), status=1)
    assert "no message begins at 421" in done.out
    assert (
        "the log goes from"
        in run("offsets", "reset", *zk(cluster), *words, "9999999", status=1).out
    )
    assert stored(cluster, "single") == [None, None, None, 2 * ENTRY]


def test_a_group_with_members_is_refused_unless_forced(cluster: Cluster, run: Run) -> None:
    reset = ("offsets", "reset", *zk(cluster), "--group", "busy", "--topic", "clicks", "--to")
    with member(cluster, "busy", autocommit_enable=False) as made:
        made.create_message_streams({"clicks": 1})
        done = run(*reset, "latest", status=1)
        assert "1 live member: nothing was changed: stop them first, or --force" in done.err
        assert stored(cluster, "busy") == [None] * 4
        run(*reset, "latest", "--dry-run")
        run(*reset, "latest", "--force")
        assert stored(cluster, "busy") == [5 * ENTRY] * 4


# --- groups and rebalances ------------------------------------------------------------------------


def test_verify_rebalance(cluster: Cluster, run: Run) -> None:
    words = ("verify-rebalance", *zk(cluster), "--group", "verified")
    # Without a timer, at which it would see that a node is gone, and claim it again.
    with member(cluster, "verified", autocommit_enable=False) as made:
        made.create_message_streams({"clicks": 2})
        assert "success, 4 partitions" in run(*words).out
        cluster.registry.delete(paths.owner_path("verified", "clicks", PARTITIONS[0]))
        [problem] = run(*words, "--json", status=1).json["problems"]
        assert (problem["broker"], problem["partition"]) == PARTITIONS[0]
        assert problem["problem"] == "it has no owner"
    assert run(*words, status=1).err == (
        "kafka2011: group 'verified' has no member: there is no rebalance to verify\n"
    )


def test_groups(cluster: Cluster, run: Run) -> None:
    consume_all(cluster, "shown")
    behind = paths.offset_path("shown", "clicks", PARTITIONS[0])
    cluster.registry.put(behind, b"%d" % (4 * ENTRY))
    assert "shown" in run("groups", "list", *zk(cluster)).lines
    found = run("groups", "describe", *zk(cluster), "shown", "--json").json
    assert found["members"] == {}
    assert [(one["owner"], one["offset"], one["lag"]) for one in found["partitions"]] == [
        (None, 4 * ENTRY, ENTRY),
        *[(None, 5 * ENTRY, 0)] * 3,
    ]
    assert "none" in run("groups", "describe", *zk(cluster), "shown").out
    said = run("groups", "describe", *zk(cluster), "shon", status=1).err
    assert "no group 'shon'; did you mean shown?" in said


def test_groups_tell_lag_in_bytes_and_time_and_a_state_with_its_reason(
    cluster: Cluster, run: Run
) -> None:
    event = bytes(33) + long(now_ms() - 9_000_000) + b"\x02s\x02v"
    brokers = ",".join(f"{n}:{h}:{p}" for n in (1, 2) for h, p in [cluster.address(n)])
    with Producer(broker_list=brokers) as producer:
        producer.send("events", [event])
    [(topic, where)] = wait_until(
        lambda: [
            ("events", partition) for partition, end in cluster.ends("events").items() if end > 0
        ],
        "the event's partition",
    )
    cluster.registry.put(paths.offset_path("late", topic, where), b"0")
    words = ("groups", "describe", *zk(cluster), "late", "--json", "--check")
    found = run(*words, "--event-forms", "events:2011", status=1).json
    assert found["state"] == "STOP"
    [one] = [one for one in found["partitions"] if one["lag"]]
    assert (one["lag"], one["lag_seconds_by"]) == (len(event) + 10, "header")
    assert 9_000 <= one["lag_seconds"] < 9_900
    [one] = [one for one in run(*words, status=1).json["partitions"] if one["lag"]]
    assert one["lag_seconds_by"] == "segment"
    assert one["lag_seconds"] < 900
    cluster.registry.put(paths.offset_path("late", topic, where), b"%d" % (len(event) + 10))
    done = run("groups", "describe", *zk(cluster), "late", "--watch", "0.1", "--check")
    assert done.out.startswith("late: OK (nothing is left to read)")


# --- another name for a datacenter ----------------------------------------------------------------


def test_a_datacenter_gets_another_name_and_its_messages_and_offsets_stay(
    zk_connect: str, run: Run, tmp_path: Path
) -> None:
    def named(name: str, hostname: str) -> Cluster:
        return Cluster(zk_connect, tmp_path, [1], process_name=name, hostname=hostname)

    def read(count: int) -> list[str]:
        words = ("--topic", "clicks", "--group", "readers", "--max-messages", str(count))
        words += ("--set", "autooffset.reset=smallest")
        return run("console-consumer", "--zookeeper", zk_connect, *words).lines

    with named("broker-1", "localhost") as before:
        before.write("clicks", 5)
        first = read(4)
        assert before.brokers[1].stop() == 0
    page = (ROOT / "docs/upgrade.md").read_text(encoding="utf-8")
    [line] = re.findall(r"^kafka2011 (status .*--forget .*)$", page, re.MULTILINE)
    with named("east-broker-1", "127.0.0.1") as after:
        shown = run(*line.replace("localhost:2181", zk_connect).split(), "--json").json
        assert [one["name"] for one in shown["processes"]] == ["east-broker-1"]
        after.write("clicks", 1)  # with the names of the first two
        assert len({*first, *read(8)}) == 10


# --- the shells of one partition ------------------------------------------------------------------


def test_get_offsets_and_simple_consumer(cluster: Cluster, run: Run) -> None:
    words = (*server(cluster), "--topic", "clicks", "--partition", "1")
    assert run("get-offsets", *words, "--time", "-2").out == "get 1 results\n0\n"
    done = run("get-offsets", *words, "--time", "-1", "--offsets", "9")
    assert done.out == f"get 2 results\n{5 * ENTRY}\n0\n"
    assert run("get-offsets", *words, "--time", "1000", "--json").json == []
    shown = run(
        "simple-consumer",
        *words,
        *("--offset", str(3 * ENTRY), "--print-messages", "--print-offsets", "--no-wait"),
    ).out.splitlines()
    assert [line[:20] for line in shown] == [
        "consumed: clicks|1-1",
        f"next offset = {4 * ENTRY}",
        "consumed: clicks|1-1",
        f"next offset = {5 * ENTRY}",
    ]
    done = run(
        "simple-consumer", *words, "--offset", "-2", "--fetchsize", "10", "--json", "--no-wait"
    )
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [record["next_offset"] for record in records] == [ENTRY * n for n in range(1, 6)]
    inside = run("simple-consumer", *words, "--offset", "5", "--no-wait", status=1).err
    assert "is it the start of an entry?" in inside
    for topic, partition in (("clicks", "7"), ("nosuch", "0")):
        where = (*server(cluster), "--topic", topic, "--partition", partition)
        assert "nothing was ever sent" in run("simple-consumer", *where, status=1).err


def test_a_console_producers_lines_go_where_key_and_partition_say(
    cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a broker's container, and in a frontend's; the option wins.
    monkeypatch.setenv("KAFKA2011_ZK_CONNECT", "nowhere:1")
    monkeypatch.setenv("KAFKA2011_BROKER_LIST", "0:nowhere:1")

    def ends() -> dict[str, int]:
        return {place.text: end for place, end in cluster.ends("views").items()}

    for words, places in ((("--partition", "2-1"), {"2-1"}), (("--key", "ann"), set(ends()))):
        before = ends()
        words = ("--topic", "views", *words)
        run("console-producer", *zk(cluster), *words, text=b"one\ntwo\n")
        grown = {place for place, end in ends().items() if end > before[place]}
        assert len(grown) == 1
        assert grown <= places


def test_ctrl_c_ends_a_simple_consumer_that_waits(cluster: Cluster, tmp_path: Path) -> None:
    words = ["simple-consumer", *server(cluster), "--topic", "clicks", "--print-offsets"]
    output = tmp_path / "out"
    with RunningProcess([*KAFKA2011, *words], tmp_path / "log", output=output) as process:
        # What there is has been flushed: it waits for more.
        wait_until(lambda: output.read_text().count("next offset") == 5, "five offsets")
        process.signal(signal.SIGINT)
        assert process.wait() == 0
    assert process.log() == f"kafka2011: 5 messages, next offset {5 * ENTRY}\n"


@pytest.mark.parametrize("command", ["simple-consumer", "console-consumer"])
def test_a_reader_that_leaves_is_no_traceback(cluster: Cluster, command: str) -> None:
    words = [*server(cluster), "--print-messages"]
    if command == "console-consumer":
        words = [*zk(cluster), "--from-beginning"]
    line = " ".join([*KAFKA2011, command, *words, "--topic clicks | head -c 3"])
    done = execute(["sh", "-c", line])
    assert "Traceback" not in done.stderr
    assert len(done.stdout) == 3


# --- replay and performance -----------------------------------------------------------------------


def test_replay_log_produces_everything_again(cluster: Cluster, run: Run) -> None:
    words = ("replay-log", *zk(cluster), "--brokerinfo", f"zk.connect={cluster.zk_connect}")
    topics = ("--inputtopic", "clicks", "--outputtopic", "again", "--consumer-timeout-ms", "120000")
    packed = ("--threads", "2", "--batch-size", "3", "--compression-codec", "1")
    done = run(*words, *topics, "--messages", "20", *packed)
    assert done.out == "20 messages replayed from clicks to again\n"
    copies = [one for found in cluster.read("again").values() for one in found]
    assert sorted(copies) == sorted(
        one for found in cluster.read("clicks").values() for one in found
    )
    assert not [name for name in cluster.registry.children(paths.CONSUMERS) if "replay" in name]
    done = run(*words, *topics, "--messages", "7", "--async")
    assert done.out.startswith("7 messages")
    done = run(*words, "--inputtopic", "clicks", "--outputtopic", "clicks", status=2)
    assert "never ends" in done.err


DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
TWO, FOUR = r"\d+\.\d{2}", r"\d+\.\d{4}"


def test_perf_tools_print_the_originals_columns(cluster: Cluster, run: Run) -> None:
    produce = ("producer-perf", "--brokerinfo", f"zk.connect={cluster.zk_connect}")
    produce = (*produce, "--topic", "perf", "--threads", "2", "--batch-size", "50")
    header, row = run(*produce, "--messages", "1000").out.splitlines()
    assert header.startswith("start.time, end.time, compression, message.size, batch.size, ")
    assert re.fullmatch(f"{DATE}, {DATE}, 0, 100, 50, {TWO}, {FOUR}, 1000, {FOUR}", row)
    detailed = ("--show-detailed-stats", "--reporting-interval", "200", "--hide-header", "--async")
    rows = run(*produce, "--messages", "1000", *detailed).out.splitlines()
    assert len(rows) == 4  # two a thread, each time its count passes the interval
    assert all(
        re.fullmatch(f"{DATE}, 0, [01], 100, 50, {TWO}, {FOUR}, \\d+, {FOUR}", row) for row in rows
    )
    consume = ("consumer-perf", "--topic", "perf", "--consumer-timeout-ms")
    patient = (*consume, "120000", "--threads")
    header, row = run(*patient, "2", *zk(cluster), "--messages", "100").out.splitlines()
    assert header == (
        "start.time, end.time, fetch.size, data.consumed.in.MB, MB.sec, "
        "data.consumed.in.nMsg, nMsg.sec"
    )
    assert re.fullmatch(f"{DATE}, {DATE}, 1048576, {FOUR}, {FOUR}, 200, {FOUR}", row)
    whole = (*patient, "1", *zk(cluster), "--messages", "2000")
    rows = run(*whole, *detailed[:4]).out.splitlines()
    assert all(
        re.fullmatch(f"{DATE}, 0, 1048576, {FOUR}, {FOUR}, \\d+, {FOUR}", row) for row in rows
    )
    assert len(rows) >= 8
    record = run(*consume, "700", *server(cluster), "--json").json  # of one partition, to its end
    assert 0 < record["data.consumed.in.nMsg"] < 2000
    # Of a topic that was durable before the tests: a producer's request that was repeated, and read
    # by its broker late, would be new messages.
    quiet = ("consumer-perf", "--topic", "clicks", "--consumer-timeout-ms", "700", *zk(cluster))
    assert "no message arrived" in run(*quiet, "--from-latest", status=1).err
    assert not [name for name in cluster.registry.children(paths.CONSUMERS) if "perf" in name]


# --- zookeeper ------------------------------------------------------------------------------------


def test_zookeeper_ls_and_get_only_look(cluster: Cluster, run: Run) -> None:
    assert run("zookeeper", "ls", *zk(cluster), "/brokers/ids").out == "1\n2\n"
    below = run("zookeeper", "ls", *zk(cluster), "-r", "/brokers/topics").out.splitlines()
    assert {"/brokers/topics/clicks", "/brokers/topics/clicks/1"} <= set(below)
    assert run("zookeeper", "get", *zk(cluster), "/brokers/topics/clicks/2").out == "2\n"
    assert run("zookeeper", "get", *zk(cluster), "/brokers/topics").out == "\n"
    found = run("zookeeper", "get", *zk(cluster), "/brokers/ids/1", "--json").json
    assert (found["ephemeral"], found["version"]) == (True, 0)
    assert "no node" in run("zookeeper", "get", *zk(cluster), "/no/such", status=1).err
    typo = cluster.zk_connect + "typo"
    assert "operatortypo" in run("topics", "list", "--zookeeper", typo, status=1).err
    root = cluster.zk_connect.partition("/")[0]
    assert "operatortypo" not in run("zookeeper", "ls", "-z", root, "/").out.split()


# --- what users get wrong -------------------------------------------------------------------------


BRIEF = "--zookeeper ZK --brokerinfo zk.connect=ZK --consumer-timeout-ms 300"
NO_BROKER = "--brokerinfo broker.list=0:127.0.0.1:1"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (1, "groups describe --zookeeper ZK nosuch"),
        (1, "offsets get --zookeeper ZK --group nosuch"),
        (1, "offsets export --zookeeper ZK --group nosuch"),
        (1, "offsets import --zookeeper ZK --input-file /no/such"),
        (1, "offsets import --zookeeper ZK --input-file README.md"),
        (1, "offsets import --zookeeper ZK --input-file /dev/null"),
        (1, "offsets reset --zookeeper ZK --group nosuch --topic clicks --to latest"),
        (1, "offsets reset --zookeeper ZK --group g --create --topic no --to latest"),
        (2, "offsets reset --zookeeper ZK --group g --topic clicks --to soon"),
        (2, "offsets reset --zookeeper ZK --group a/b --topic clicks --to latest"),
        (2, "offsets reset --zookeeper ZK --group g --create --topic clicks --to 0"),
        (1, "verify-rebalance --zookeeper ZK --group nosuch"),
        (1, "get-offsets --server SERVER --topic t --time -1"),
        (2, "get-offsets --server nowhere --topic t --time -1"),
        (2, "get-offsets --server SERVER --topic a/b --time -1"),
        (1, "simple-consumer --server SERVER --topic t"),
        (1, "consumer-perf --zookeeper ZK --topic nosuch --consumer-timeout-ms 300"),
        (2, "consumer-perf --topic clicks"),
        (2, "producer-perf --brokerinfo x --topic t --messages 10"),
        (2, "producer-perf --brokerinfo zk.connect=ZK --topic t --messages 10"),
        (1, f"producer-perf {NO_BROKER} --topic t --messages 1 --threads 1 --async"),
        (2, "tail --state /proc/no/x --topic t --broker-list 0:127.0.0.1:1 --until-end README.md"),
        (2, "zookeeper get --zookeeper ZK brokers"),
        (2, "zookeeper ls --zookeeper /chroot /"),
        (1, "topics describe --zookeeper ZK nosuch"),
        (2, "console-producer --topic t"),
        (2, "console-producer --topic t --broker-list nowhere"),
        (2, "console-producer --topic t --zookeeper a:1 --broker-list 0:b:2"),
        (2, "console-consumer --zookeeper ZK"),
        (2, "console-consumer --zookeeper ZK --topic a --whitelist b"),
        (2, "console-consumer --zookeeper ZK --whitelist ("),
        (2, "console-consumer --zookeeper ZK --topic a --property nonsense=1"),
        (2, "console-consumer --zookeeper ZK --topic a --formatter xml"),
        (2, "console-consumer --zookeeper ZK --topic a --group a/b"),
        (1, f"replay-log {BRIEF} --inputtopic no --outputtopic b"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    cluster: Cluster, run: Run, status: int, words: str
) -> None:
    known = words.replace("ZK", cluster.zk_connect).replace("SERVER", "kafka://127.0.0.1:1")
    done = run(*known.split(), status=status)
    assert done.err.startswith("kafka2011: ")
    assert len(done.err.strip().splitlines()) == 1


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_examples_of_the_operations_page_run(cluster: Cluster, run: Run) -> None:
    [block] = [block for block in blocks("operations.md", "sh") if "offsets export" in block]
    consume_all(cluster, "indexer")
    address = "{}:{}".format(*cluster.address(1))
    with member(cluster, "indexer") as made:
        made.create_message_streams({"clicks": 1})
        for line in block.splitlines():
            assert line.startswith("kafka2011 ")
            words = line.replace("localhost:2181", cluster.zk_connect)
            words = words.replace("localhost:9092", address)
            assert run(*words.split()[1:]).out, line


def test_threads_of_the_commands_have_ended() -> None:
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith(("perf-", "replay"))]
