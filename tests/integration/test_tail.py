"""`kafka2011 tail` on real files, rotated and truncated under load, killed: every line arrives."""

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.brokers import RunningBroker, start_broker
from tests.support.commands import KAFKA2011, RunningProcess, run
from tests.support.stored import stored_payloads
from tests.support.waiting import wait_for_growth

pytestmark = pytest.mark.integration


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with start_broker(tmp_path) as running:
        yield running


def words(tmp_path: Path, broker: RunningBroker, *more: str) -> list[str]:
    return [
        *("tail", f"{tmp_path}/app.log*", "--topic", "lines"),
        *("--broker-list", broker.broker_list, "--state", str(tmp_path / "state")),
        *("--set", "tail.gone.wait.ms=200", "--set", "tail.poll.ms=10"),
        *("--set", "tail.retry.max.ms=200", "--set", "connect.timeout.ms=100", *more),
    ]


def arrived(broker: RunningBroker) -> list[bytes]:
    return stored_payloads([broker.log_dir]).get("lines", [])


def arrived_count(broker: RunningBroker) -> int:
    return len(arrived(broker))


class Writer:
    """Writes numbered lines, half a line at a time, and rotates both ways now and then."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        log = self._root / "app.log"
        for turn in itertools.count(1):
            with log.open("ab", buffering=0) as output:
                for _ in range(20):
                    line = b"%08d \xff\x00 and so on\n" % self.count
                    output.write(line[:12])
                    output.write(line[12:])
                    self.count += 1
            if turn % 40 == 0:  # renamed, with its writer going on for a moment
                log.rename(self._root / f"app.log.{turn}")
            elif turn % 40 == 20:  # copied, and truncated in place
                (self._root / f"app.log.copy{turn}").write_bytes(log.read_bytes())
                with log.open("r+b") as output:
                    output.truncate(0)
            if self._stop.wait(0.01):
                return

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_every_line_arrives_through_rotation_truncation_kills_and_a_broker_away(
    tmp_path: Path, broker: RunningBroker
) -> None:
    port = broker.port
    with contextlib.ExitStack() as stack:
        with Writer(tmp_path) as writer:
            for turn in range(4):
                seen = arrived_count(broker)
                command = [*KAFKA2011, *words(tmp_path, broker)]
                with RunningProcess(command, tmp_path / f"tail-{turn}.log") as tail:
                    # What the one before had under way may arrive late.
                    tail.wait_for_event("following")
                    wait_for_growth(partial(arrived_count, broker), 500, "lines arrive", since=seen)
                    if turn == 1:
                        broker.kill()
                        wait_for_growth(lambda: writer.count, 500, "lines meanwhile")
                        broker = stack.enter_context(start_broker(tmp_path, port=port))
                        wait_for_growth(partial(arrived_count, broker), 500, "it goes on")
                    if turn % 2:
                        tail.kill()
                    else:
                        assert tail.stop() == 0
        done = run(*words(tmp_path, broker, "--until-end", "--json"))
        assert json.loads(done.stdout)["unsent_lines"] == 0
        assert broker.stop() == 0
    expected = {b"%08d \xff\x00 and so on" % number for number in range(writer.count)}
    missing = expected - set(arrived(broker))
    assert not missing, f"{len(missing)} of {writer.count}, {sorted(missing)[:3]}"


def test_it_says_what_is_wrong_and_gives_up(tmp_path: Path, broker: RunningBroker) -> None:
    def tail(*more: str) -> tuple[int, str]:
        done = run(*words(tmp_path, broker, "--until-end", *more), status=None)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    status, told = tail()
    assert status == 1
    assert "no such files" in told
    (tmp_path / "app.log").write_bytes(b"one\ntwo")
    assert tail("--topic", "a/b")[0] == 2
    (tmp_path / "state").write_bytes(b"nonsense")
    status, told = tail()
    assert status == 2
    assert "move it away" in told
    (tmp_path / "state").unlink()
    broker.kill()
    status, told = tail("--set", "tail.give.up.ms=100")
    assert status == 1
    assert "read and maybe not on the brokers: 1 line;" in told
    with start_broker(tmp_path, port=broker.port) as again:
        status, told = tail()
        assert (status, told) == (0, "kafka2011: 2 lines sent to lines\n")
        status, told = tail()
        assert status == 0
        assert told == (
            "kafka2011: 0 lines sent to lines, behind what was sent of 1 file before, by the "
            f"positions in {tmp_path / 'state'}\n"
        )
        assert again.stop() == 0
    assert arrived(again) == [b"one", b"two"]
