"""Real processes of ours for the integration tests: `python -m kafka2011 COMMAND` with its log.

    with start_command("proxy", {"proxy.listen": "127.0.0.1:0"}, log=tmp_path / "proxy.log") as run:
        serving = run.wait_for_event("serving")       # the fields of that log line
        run.kill()

Settings are passed as environment variables, as the embedded deployment and the containers do.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka2011.runtime.config import environment_name
from tests import ROOT
from tests.support.waiting import wait_until


class RunningCommand:
    """One child process whose standard error goes to `log` as JSON lines."""

    def __init__(
        self,
        command: str,
        settings: Mapping[str, object],
        log: Path,
        failpoints: str = "",
    ) -> None:
        self.log_path = log
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("KAFKA2011_")
        }
        if "KAFKA2011_PURE" in os.environ:
            environment["KAFKA2011_PURE"] = os.environ["KAFKA2011_PURE"]
        environment["KAFKA2011_LOG_FORMAT"] = "json"
        environment["KAFKA2011_EVENT_FORMS"] = "*:2011"  # no registry, unless a test has one
        if failpoints:
            environment["KAFKA2011_FAILPOINTS"] = failpoints
        for name, value in settings.items():
            environment[environment_name(name)] = str(value)
        with log.open("ab") as output:
            self._log_start = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kafka2011", *command.split()],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """What it has printed so far, since this start."""
        with self.log_path.open("rb") as output:
            output.seek(self._log_start)
            return output.read().decode("utf-8", "replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of the event `name`, oldest first."""
        found = []
        for line in self.log().splitlines():
            with contextlib.suppress(ValueError):
                fields = json.loads(line)
                if isinstance(fields, dict) and fields.get("event") == name:
                    found.append(fields)
        return found

    def wait_for_event(self, name: str, timeout_s: float = 60) -> dict[str, Any]:
        """The first log line of the event `name`; AssertionError when the process ends first."""

        def look() -> list[dict[str, Any]]:
            found = self.events(name)
            if not found and self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.log()}")
            return found

        return wait_until(look, lambda: f"no {name!r} in\n{self.log()}", timeout_s)[0]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM; the exit status."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.kill()


start_command = RunningCommand
