"""Full, limited and dying disks under a real broker process, without a container.

A tmpfs of one megabyte in a mount namespace fills up; RLIMIT_FSIZE gives a short write and then an
error; a preloaded library makes one fdatasync fail. Each test says why it is skipped where the
machine lacks the means.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.disks import build
from tests.support.brokers import start_broker
from tests.support.raw_requests import EMPTY, answer, entry, fetch, offsets, offsets_answer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


def can_mount() -> bool:
    try:
        return (
            subprocess.run(
                ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"],
                capture_output=True,
                check=False,
            ).returncode
            == 0
        )
    except OSError:
        return False


@pytest.mark.skipif(not can_mount(), reason="no mount namespace for a small tmpfs here")
def test_full_disk_refuses_writes_keeps_reads_and_recovers(tmp_path: Path) -> None:
    """S9, on a tmpfs of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["unshare", "-rm", "sh", "-c"]
    mount += [f'mount -t tmpfs -o size=1m tmpfs {disk} && exec "$@"', "sh"]
    big = entry(os.urandom(60_000))
    with start_broker(
        tmp_path,
        prefix=mount,
        log_dir=disk / "logs",
        quarantine_dir=disk / "quarantine",
        log_file_size=200_000,
        log_retention_size=300_000,
        log_cleanup_interval_mins=1,
    ) as broker:
        confirmed = 0
        while broker.store(b"t", big):
            confirmed += 1
            assert confirmed < 100, "the disk never got full"
        assert confirmed >= 10
        assert broker.latest(b"t") == confirmed * len(big)
        for offset in range(0, confirmed * len(big), len(big)):
            with broker.connect() as client:
                assert client.ask(fetch(b"t", offset, 0, len(big))) == answer(big)
        assert not broker.store(b"t", big), "still full"
        refused = broker.metrics()[
            'kafka2011_broker_connections_closed_total{reason="storage-full"}'
        ]
        assert refused >= 2
        # A small one may still fit in what is left of the last page; whole or not at all.
        broker.store(b"t", entry(b"small"))
        assert (broker.latest(b"t") - confirmed * len(big)) in (0, len(entry(b"small")))
        # Space returns: a file of another partition is removed (here: from outside).
        inside = Path(f"/proc/{broker.pid}/root{disk}/logs/t-0")
        oldest = sorted(inside.iterdir())[0]
        os.truncate(oldest, 0)
        wait_until(lambda: broker.store(b"t", big), "writes work again")
        assert broker.is_running


def test_file_size_limit_gives_a_short_write_and_then_an_error(tmp_path: Path) -> None:
    """S11 and S9 by RLIMIT_FSIZE: the first write over the limit is cut short, the next fails."""
    limit = ["prlimit", f"--fsize={100_000}", "--"]
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit here")
    one = entry(os.urandom(30_000))
    with start_broker(tmp_path, prefix=limit) as broker:
        ends = [broker.store(b"t", one) for _ in range(3)]
        assert ends == [len(one) * count for count in (1, 2, 3)]
        assert not broker.store(b"t", one), "this one ends beyond the limit"
        path = broker.log_dir / "t-0" / "00000000000000000000.kafka"
        assert path.read_bytes() == one * 3, "the half set is cut off again"
        refused = 'kafka2011_broker_refused_sets_total{reason="storage-full",topic="t"}'
        assert broker.metrics()[refused] == 1
        assert broker.latest(b"t") == 3 * len(one)
        assert broker.store(b"t", entry(b"small")), "what fits is taken"
        assert broker.store(b"u", one), "another log has room"
        assert broker.stop() == 0
    assert path.read_bytes() == one * 3 + entry(b"small")


@pytest.fixture(scope="module")
def failing_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("preload"))


def test_failed_flush_makes_that_log_read_only_and_no_other(
    tmp_path: Path, failing_library: Path
) -> None:
    """S12: the next fdatasync would succeed, and proves nothing."""
    trigger = tmp_path / "fail-once"
    environment = {"LD_PRELOAD": str(failing_library), "FAIL_FILE": str(trigger)}
    one = entry(b"one")
    with start_broker(tmp_path, environment=environment) as broker:
        assert broker.store(b"t", one)
        assert broker.store(b"u", one)
        trigger.touch()
        assert not broker.store(b"t", one), "a barrier answered after a failed flush"
        assert not trigger.exists()
        for _ in range(3):
            assert not broker.store(b"t", one)
            assert broker.latest(b"t") == len(one), "the watermark moved past a failed flush"
            with broker.connect() as client:
                assert client.ask(fetch(b"t")) == answer(one)
                assert client.ask(fetch(b"t", len(one))) == EMPTY
        assert broker.store(b"u", one)
        metrics = broker.metrics()
        assert metrics["kafka2011_broker_flush_errors_total"] == 1
        assert metrics['kafka2011_broker_partition_online{partition="0",topic="t"}'] == 0
        assert broker.stop() == 3, "a stop with unflushed data is no clean stop"
        assert not (broker.log_dir / ".kafka_cleanshutdown").exists()


def test_the_broker_ends_with_its_own_status_when_every_log_failed(
    tmp_path: Path, failing_library: Path
) -> None:
    trigger = tmp_path / "fail-once"
    environment = {"LD_PRELOAD": str(failing_library), "FAIL_FILE": str(trigger)}
    with start_broker(tmp_path, environment=environment) as broker:
        assert broker.store(b"t", entry(b"one"))
        trigger.touch()
        assert not broker.store(b"t", entry(b"two"))
        assert broker.wait() == 3
        assert "storage_failed" in broker.log()
    with start_broker(tmp_path) as broker:
        assert broker.latest(b"t") >= len(entry(b"one"))


def test_data_directory_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    """S18."""
    with start_broker(tmp_path) as broker:
        with start_broker(tmp_path, wait=False) as second:
            assert second.wait() == 1
            last = second.log().strip().splitlines()[-1]
            assert last.startswith("kafka2011 broker: log.dir ")
            assert "in use by another broker" in last
        with broker.connect() as client:
            assert client.ask(offsets(b"t", -1, 1)) == offsets_answer(0)


def test_unusable_data_directory_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    for place in (file, Path("/proc/nothing/here")):
        with start_broker(tmp_path, wait=False, log_dir=place) as broker:
            assert broker.wait() == 1
            assert "Traceback" not in broker.log()
            last = broker.log().strip().splitlines()[-1]
            assert last.startswith(f"kafka2011 broker: log.dir {place}")


def test_few_descriptors_pause_accepting_and_nothing_else(tmp_path: Path) -> None:
    """S14: with the descriptors used up, connections that are there go on; then it recovers."""
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit here")
    with start_broker(
        tmp_path, prefix=["prlimit", "--nofile=60:60", "--"], connections_max=500
    ) as broker:
        with broker.connect() as early:
            assert early.ask(offsets(b"t", -1, 1)) == offsets_answer(0)
            flood = [broker.connect() for _ in range(60)]
            wait_until(
                lambda: len(os.listdir(f"/proc/{broker.pid}/fd")) >= 58,
                "the descriptors are used up",
            )
            assert early.ask(offsets(b"t", -2, 1)) == offsets_answer(0)
            assert early.ask(fetch(b"t")) == EMPTY
            for client in flood:
                client.close()
        wait_until(lambda: broker.latest(b"t") == 0, "accepting works again")
        assert broker.store(b"t", entry(b"one"))
