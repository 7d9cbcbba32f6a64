"""Programs of the original on the class path that `ORIGINAL_CLASSPATH` gives.

`run` waits for a tool and returns its output; `start` leaves a program running (a broker, a
consumer, a mirror maker) whose output goes to a file.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import RunningProcess, dotted, held_port
from tests.support.waiting import wait_until

# 0.7's scripts give 512 MB; the tests move a few megabytes.
JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

LOG4J = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


@dataclass
class OriginalBroker:
    process: RunningProcess
    port: int
    log_dir: Path


class Jvm:
    """Runs main classes of the original; files go to `directory`."""

    def __init__(self, class_path: str, directory: Path) -> None:
        self._directory = directory
        settings = directory / "log4j.properties"
        settings.write_text(LOG4J)
        self._command = [*JAVA, f"-Dlog4j.configuration=file:{settings}", "-cp", class_path]
        self._number = 0

    def start(self, main: str, *arguments: str, text: bytes = b"") -> RunningProcess:
        """Start `main`; `text` is its standard input."""
        self._number += 1
        stem = self._directory / f"{main.rpartition('.')[2]}-{self._number}"
        given = stem.with_suffix(".in")
        given.write_bytes(text)
        words = [*self._command, main, *arguments]
        output = stem.with_suffix(".out")
        return RunningProcess(words, stem.with_suffix(".err"), output=output, stdin=given)

    def run(self, main: str, *arguments: str, timeout_s: float = 60) -> str:
        """The output of a tool that ends by itself."""
        with self.start(main, *arguments) as program:
            program.wait(timeout_s)
            return program.output.read_text(errors="replace")

    @contextlib.contextmanager
    def broker(
        self, log_dir: Path, broker_id: int, **properties: object
    ) -> Iterator[OriginalBroker]:
        """The original broker, when it answers; `properties` have `_` for `.`."""
        port = held_port()
        settings = {
            "brokerid": broker_id,
            "hostname": "127.0.0.1",
            "port": port,
            "log.dir": log_dir,
            **dotted(properties),
        }
        file = self._directory / f"server-{port}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

        def answers() -> bool:
            assert program.is_running, program.log()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        with self.start("kafka.Kafka", str(file)) as program:
            wait_until(answers, f"the original broker on port {port}")
            yield OriginalBroker(program, port, log_dir)


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Jvm:
    class_path = os.environ.get("ORIGINAL_CLASSPATH", "")
    if not class_path:
        pytest.skip("ORIGINAL_CLASSPATH does not say where Kafka 0.7.2's classes are")
    return Jvm(class_path, tmp_path_factory.mktemp("jvm"))
