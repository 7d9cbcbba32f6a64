"""Members of a consumer group as real processes: `kafka2011 console-consumer --json`."""

import json
from pathlib import Path
from typing import Any

from tests.support.commands import KAFKA2011, RunningProcess


class MemberProcess(RunningProcess):
    """One console consumer; what it prints is kept in `output`."""

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
        words = [*KAFKA2011, "console-consumer", "--zookeeper", zk_connect, "--json", *options]
        settings = {
            "consumerid": name,
            "zk.sessiontimeout.ms": session_timeout_ms,
            "zk.synctime.ms": 500,
            "zk.connectiontimeout.ms": 20_000,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        super().__init__(words, directory / f"{name}.log", output=self.output)

    def messages(self) -> list[dict[str, Any]]:
        """What it has printed so far, whole lines only."""
        text = self.output.read_bytes()
        return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]

    def payloads(self) -> list[str]:
        return [message["payload"] for message in self.messages()]
