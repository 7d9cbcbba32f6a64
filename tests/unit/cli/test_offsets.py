"""`offsets`: what is refused, and what is said of a change that was not made."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafka2011.cli.offsets import parse_target
from kafka2011.consumer.chunk import TopicPartition
from kafka2011.consumer.simple import SimpleConsumer
from kafka2011.coordination import paths
from kafka2011.coordination.paths import BrokerPartition
from tests.conftest import Run
from tests.support.memory_deployment import Deployment, numbered

ZK = ("--zookeeper", "zk:1")
RESET = ("offsets", "reset", *ZK, "--group", "g", "--topic", "t")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"junk\n", "standard input: line 1 is not /consumers/GROUP/offsets/TOPIC/"),
        (b"", "standard input: no offsets in it"),
    ],
)
def test_what_is_no_export_is_said_of_standard_input(run: Run, content: bytes, said: str) -> None:
    done = run("offsets", "import", "--input-file", "-", text=content)
    assert done.status == 1
    assert done.err.startswith(f"kafka2011: {said}")


@pytest.fixture
def stored(deployment: Deployment) -> Callable[[], list[bytes | None]]:
    """What group g has stored in the two partitions of t, which are 55 bytes long: at first 0."""
    broker = deployment.broker_of_t(numbered(0, 5), partitions=2)
    broker.append("t", 1, numbered(0, 5))
    deployment.admin.put("/brokers/topics/empty", b"")
    for partition in (0, 1):
        path = paths.offset_path("g", "t", BrokerPartition(0, partition))
        deployment.admin.put(path, b"0")
    return lambda: [deployment.stored("t", 0, partition) for partition in (0, 1)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--partition", "0-0", "--partition", "9-9"), ["partition 9-9"]),
        (("--partition", "8-8", "--partition", "9-9"), ["partition 8-8", "partition 9-9"]),
        (("--topic", "empty"), ["topic 'empty'"]),
        (("--topic", "empty", "--partition", "0-1"), ["topic 'empty'"]),
    ],
)
def test_a_reset_of_something_that_is_not_there_is_refused_whole(
    run: Run, stored: Callable[[], list[bytes]], words: tuple[str, ...], said: list[str]
) -> None:
    done = run(*RESET, "--to", "latest", *words)
    reason = "no live broker has such a partition, and no offset is stored"
    assert done.err.splitlines() == [f"kafka2011: {what}: {reason}" for what in said]
    assert (done.status, done.out, stored()) == (1, "", [b"0", b"0"])


def test_a_reset_moves_what_was_named(run: Run, stored: Callable[[], list[bytes]]) -> None:
    assert run(*RESET, "--to", "latest", "--partition", "0-1").status == 0
    assert stored() == [b"0", b"55"]


def test_a_reset_of_what_is_there_already_says_so(
    run: Run, stored: Callable[[], list[bytes]]
) -> None:
    done = run(*RESET, "--to", "earliest", "--json")
    assert (done.status, [row["note"] for row in done.json]) == (0, ["not moved"] * 2)
    assert stored() == [b"0", b"0"]


def test_a_broker_that_dies_is_not_called_an_offset_without_a_message(
    deployment: Deployment,
    run: Run,
    stored: Callable[[], list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = (*RESET, "--partition", "0-0", "--to")
    done = run(*words, "12")
    assert done.status == 1
    assert "no message begins at 12" in done.out
    assert run(*words, "11").status == 0
    fetch = SimpleConsumer.fetch

    def dead(client: SimpleConsumer, *words: int | str) -> object:
        deployment.brokers[0].close()
        return fetch(client, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(SimpleConsumer, "fetch", dead)
    done = run(*words, "22")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"kafka2011: {TopicPartition('t', 0, 0)}: ")
    assert stored() == [b"11", b"0"]


Lost = Callable[[str, int], pytest.MonkeyPatch]


def test_an_import_that_was_stopped_half_way_says_what_it_stored(
    deployment: Deployment, run: Run, lost: Lost, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.txt"
    lines = [f"/consumers/new/offsets/t/0-{number}:{number}\n" for number in range(5)]
    file.write_text("".join(lines))
    words = ("offsets", "import", *ZK, "--input-file", file)
    away = lost("put", 3)
    done = run(*words, "--json")
    away.undo()
    assert done.status == 1
    assert [row["note"] for row in done.json] == [
        None,
        None,
        "not known whether it was changed",
        "not changed",
        "not changed",
    ]
    reason = "no answer from ZooKeeper: 2 of 5 offsets were changed; run it again"
    assert done.err == f"kafka2011: {reason}\n"
    assert run(*words).status == 0
    assert run("offsets", "export", *ZK, "--group", "new").out == "".join(lines)


def test_a_reset_that_was_stopped_half_way_shows_its_table(
    run: Run, stored: Callable[[], list[bytes]], lost: Lost
) -> None:
    away = lost("put", 2)
    done = run(*RESET, "--to", "latest")
    away.undo()
    assert (done.status, stored()) == (1, [b"55", b"0"])
    assert "not known whether it was changed" in done.out
    assert "1 of 2 offsets were changed" in done.err


def test_a_topic_of_which_nothing_is_stored_is_named(
    run: Run, stored: Callable[[], list[bytes]]
) -> None:
    done = run("offsets", "get", *ZK, "--group", "g", "--topic", "t", "--topic", "typo", "--json")
    assert (done.status, len(done.json)) == (1, 2)
    assert done.err == "kafka2011: group 'g' has no offsets in topic 'typo'\n"
    assert run("offsets", "get", *ZK, "--group", "g", "--topic", "t").status == 0


def test_a_name_that_is_no_line_of_an_export_is_left_out(deployment: Deployment, run: Run) -> None:
    deployment.admin.put("/consumers/a\x1b[31m\nb/offsets/t/0-0", b"1")
    deployment.admin.put("/consumers/c/offsets/t/0-0", b"2")
    done = run("offsets", "export", *ZK)
    assert done.out == "/consumers/c/offsets/t/0-0:2\n"
    assert done.err == (
        "kafka2011: /consumers/a\\x1b[31m\\x0ab/offsets/t/0-0 is not one line of text: left out\n"
    )


def test_an_export_for_which_there_is_no_room_leaves_the_one_before(
    deployment: Deployment, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written of it may end within a number, and `import` would take that."""
    deployment.admin.put("/consumers/c/offsets/t/0-0", b"2000")
    here = tmp_path / "here"
    here.mkdir()
    file, link, fifo = here / "offsets.txt", here / "link", here / "fifo"
    link.symlink_to(file)
    os.mkfifo(fifo)

    def export(to: Path) -> tuple[int, str]:
        done = run("offsets", "export", *ZK, "--output-file", to, status=None)
        return done.status, done.err

    assert export(link) == (0, "")
    before = file.read_text()
    assert (before, link.is_symlink()) == ("/consumers/c/offsets/t/0-0:2000\n", True)
    deployment.admin.put("/consumers/c/offsets/t/0-0", b"3000")
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left")))
        assert export(file) == (1, f"kafka2011: {file}: No space left\n")
    assert file.read_text() == before
    assert sorted(here.iterdir()) == sorted([file, link, fifo])
    nowhere = here / "typo" / "offsets.txt"
    assert export(nowhere) == (1, f"kafka2011: {nowhere}: No such file or directory\n")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert export(fifo) == (0, "")
    assert os.read(reader, 1000) == before.replace("2000", "3000").encode()
    os.close(reader)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z"])
def test_a_time_before_1970_is_refused(refused: Callable[..., str], text: str) -> None:
    """-1 is latest on the wire, and -2 is earliest."""
    assert f"--to '{text}': before 1970" in refused(parse_target, text)
