"""Members of a consumer group as real processes: `kafka2011 console-consumer --json`."""

import json
from pathlib import Path
from typing import Any

from tests.support.commands import KAFKA2011, RunningProcess, dotted, set_options


class MemberProcess(RunningProcess):
    """One console consumer."""

    def __init__(
        self,
        directory: Path,
        name: str,
        zk_connect: str,
        *options: str,
        **settings: object,
    ) -> None:
        words = [*KAFKA2011, "console-consumer", "--zookeeper", zk_connect, "--json", *options]
        settings = {
            "consumerid": name,
            "zk.synctime.ms": 500,
            "zk.connectiontimeout.ms": 120_000,
            **dotted(settings),
        }
        words += set_options(settings)
        super().__init__(words, directory / f"{name}.log", output=directory / f"{name}.out")

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]

    def payloads(self) -> list[str]:
        return [message["payload"] for message in self.messages()]
