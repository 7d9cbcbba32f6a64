"""What a power failure or a bad disk does to one topic's tables stops no other topic."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.warehouse import delta_log, delta_table
from kafka2011.services.warehouse.delta_table import CommitUncertain, WarehouseError, WarehouseTable
from tests.unit.services.warehouse.load.deployment import Deployment

DAMAGED = {
    "zeros": b"\0" * 100,
    "cut": b'{"commitInfo":{"timest',
    "no text": b"\xff\xfe\n",
    "no action": b"[7]\n",
    "a transaction without its parts": b'{"txn":{}}\n',
    "nested without end": b"[" * 100_000,
}


def newest_commit(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("table", ["access_log", "quarantine-tables/access_log"])
@pytest.mark.parametrize("is_new", [True, False], ids=["a new process", "one that was running"])
def test_a_damaged_commit_stops_its_own_topic_alone(
    deployment: Deployment, table: str, content: bytes, is_new: bool
) -> None:
    running = deployment.loader()
    deployment.append(range(5), b"junk")
    running.load()
    deployment.append(range(5, 8), b"more junk")
    if not is_new:
        deployment.load()  # another loader's commit is the one that is damaged
        deployment.append(range(8, 11))
    file = newest_commit(deployment.warehouse / table)
    good = file.read_bytes()
    file.write_bytes(content)
    deployment.add_partition("other", b"one")
    loader = deployment.loader() if is_new else running
    outcome = loader.load()
    (failure,) = outcome.failures
    assert failure.startswith(f"{ACCESS_LOG}: ")
    assert "\n" not in failure
    assert outcome.quarantined == {"other": 1}
    # What is unread is known where the topic's offsets are.
    assert (outcome.lag.unknown == {ACCESS_LOG}) != (outcome.lag.bytes.get(ACCESS_LOG, 0) > 0)
    assert outcome.lag.bytes["other"] == 0
    file.write_bytes(good)
    assert loader.load().failures == []
    assert deployment.numbers() == [*range(8 if is_new else 11)]
    assert deployment.quarantined() == [b"junk", b"more junk"]


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_the_error_names_the_file(deployment: Deployment, content: bytes) -> None:
    deployment.append(range(5))
    deployment.load()
    table = deployment.warehouse / "access_log"
    file = newest_commit(table)
    file.write_bytes(content)
    with pytest.raises(WarehouseError) as found:
        delta_log.app_transactions(table)
    assert str(found.value).startswith(f"{file} is damaged: ")


def test_a_damaged_checkpoint_is_named_too(deployment: Deployment) -> None:
    deployment.append(range(5))
    deployment.load()
    table = deployment.warehouse / "access_log"
    DeltaTable(str(table)).create_checkpoint()
    file = table / "_delta_log" / "00000000000000000001.checkpoint.parquet"
    file.write_bytes(b"\0" * file.stat().st_size)
    deployment.add_partition("other", b"one")
    outcome = deployment.load()
    assert len(outcome.failures) == 1
    assert str(file) in outcome.failures[0]
    assert outcome.quarantined == {"other": 1}


def test_damaged_messages_in_quarantine_stop_their_own_topic_alone(deployment: Deployment) -> None:
    deployment.append(range(5), b"junk")
    deployment.load()
    (file,) = deployment.named_files("quarantine-tables/access_log")
    Path(file).write_bytes(b"\0" * 100)
    # The rows have gone, so that the load asks what of them is in quarantine.
    table = WarehouseTable.open(deployment.warehouse / "access_log")
    assert table is not None
    for each in (table.path / "_delta_log").iterdir():
        each.unlink()
    deployment.add_partition("other", b"one")
    outcome = deployment.load()
    assert [failure.partition(":")[0] for failure in outcome.failures] == [ACCESS_LOG]
    assert outcome.quarantined == {"other": 1}
    assert outcome.lag.bytes[ACCESS_LOG] > 0


def test_a_commit_that_a_damaged_log_may_hold_is_uncertain(deployment: Deployment) -> None:
    # Its files would be removed otherwise, as those of a load that failed.
    deployment.append(range(5))
    deployment.load()
    path = deployment.warehouse / "access_log"
    table = DeltaTable(str(path))
    newest_commit(path).write_bytes(DAMAGED["cut"])
    with pytest.raises(CommitUncertain, match="is damaged"):
        delta_table._has_commit(path, table, "a name", 0)
