"""Members of a consumer group as real processes: `kafka2011 console-consumer --json`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.commands import ROOT


class MemberProcess:
    """One console consumer; what it prints is kept in `output`, its log in `log`."""

    def __init__(
        self,
        directory: Path,
        name: str,
        zk_connect: str,
        *options: str,
        session_timeout_ms: int = 2000,
        **settings: object,
    ) -> None:
        self.output = directory / f"{name}.out"
        self.log = directory / f"{name}.log"
        words = [sys.executable, "-m", "kafka2011", "console-consumer", "--zookeeper", zk_connect]
        words += ["--json", *options]
        settings = {
            "consumerid": name,
            "zk.sessiontimeout.ms": session_timeout_ms,
            "zk.synctime.ms": 500,
            "zk.connectiontimeout.ms": 20_000,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("KAFKA2011_")
        }
        if "KAFKA2011_PURE" in os.environ:
            environment["KAFKA2011_PURE"] = os.environ["KAFKA2011_PURE"]
        with self.output.open("ab") as out, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log
            )

    def messages(self) -> list[dict[str, Any]]:
        """What it has printed so far, whole lines only."""
        text = self.output.read_bytes()
        return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]

    def payloads(self) -> list[str]:
        return [message["payload"] for message in self.messages()]

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self, timeout_s: float = 30) -> int:
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
            self.process.send_signal(signal.SIGCONT)
            self.kill()
