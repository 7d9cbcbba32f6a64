"""Programs of the original on the class path that `ORIGINAL_CLASSPATH` gives.

`run` waits for a tool and returns its output; `start` leaves a program running (a broker, a
consumer, a mirror maker) whose output goes to a file.
"""

import os
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.support.waiting import wait_until

# 0.7's scripts give 512 MB; the tests move a few megabytes.
JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

LOG4J = """log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class RunningProgram:
    """One program of the original; `lines` is what it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, errors: Path) -> None:
        self.process = process
        self.output = output
        self.errors = errors

    def lines(self) -> list[str]:
        return self.output.read_text(errors="replace").splitlines()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()


class Jvm:
    """Runs main classes of the original; files go to `directory`."""

    def __init__(self, class_path: str, directory: Path) -> None:
        self._directory = directory
        settings = directory / "log4j.properties"
        settings.write_text(LOG4J)
        self._command = [*JAVA, f"-Dlog4j.configuration=file:{settings}", "-cp", class_path]
        self._number = 0

    def start(self, main: str, *arguments: str, text: bytes = b"") -> RunningProgram:
        """Start `main`; `text` is its standard input."""
        self._number += 1
        stem = f"{main.rpartition('.')[2]}-{self._number}"
        given = self._directory / f"{stem}.in"
        given.write_bytes(text)
        output, errors = self._directory / f"{stem}.out", self._directory / f"{stem}.err"
        with given.open("rb") as read, output.open("wb") as wrote, errors.open("wb") as wrong:
            process = subprocess.Popen(
                [*self._command, main, *arguments], stdin=read, stdout=wrote, stderr=wrong
            )
        return RunningProgram(process, output, errors)

    def run(self, main: str, *arguments: str, timeout_s: float = 60) -> str:
        """The output of a tool that ends by itself."""
        with self.start(main, *arguments) as program:
            program.process.wait(timeout_s)
            return program.output.read_text(errors="replace")

    def broker(self, properties: dict[str, object]) -> RunningProgram:
        """The original broker; returns when its port answers."""
        self._number += 1
        file = self._directory / f"server-{self._number}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        program = self.start("kafka.Kafka", str(file))
        port = int(str(properties["port"]))

        def answers() -> bool:
            assert program.process.poll() is None, program.errors.read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(answers, f"the original broker on port {port}", 60)
        return program


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Jvm:
    class_path = os.environ.get("ORIGINAL_CLASSPATH", "")
    if not class_path:
        pytest.skip("ORIGINAL_CLASSPATH does not say where Kafka 0.7.2's classes are")
    return Jvm(class_path, tmp_path_factory.mktemp("jvm"))
