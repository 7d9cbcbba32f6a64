"""The examples in the commands' help are commands that exist, with options that exist."""

import re
import shlex

import pytest
from typer.main import get_command

from kafka2011.cli.commands import COMMANDS
from kafka2011.cli.main import app_of

TOOLS = (
    "console-consumer",
    "console-producer",
    "consumer-perf",
    "dump-log",
    "get-offsets",
    "groups",
    "offsets",
    "producer-perf",
    "replay-log",
    "simple-consumer",
    "topics",
    "verify-rebalance",
    "zookeeper",
)


def examples(command: object) -> list[str]:
    """Every `For example: kafka2011 ...` of the command and its subcommands, to the paragraph's
    end."""
    texts = [getattr(command, "help", None) or ""]
    for inner in getattr(command, "commands", {}).values():
        texts.append(inner.help or "")
    found = []
    for text in texts:
        for match in re.findall(r"For example: (kafka2011 .*?)(?:\n\n|$)", text, re.DOTALL):
            found.append(" ".join(match.split()).partition(" < ")[0])
    return found


@pytest.mark.parametrize("name", TOOLS)
def test_each_tool_has_an_example_that_parses(name: str) -> None:
    command = get_command(app_of(COMMANDS[name]))
    found = examples(command)
    assert found, f"{name} --help has no example"
    for example in found:
        words = shlex.split(example)
        assert words[:2] == ["kafka2011", name]
        rest, inner = words[2:], command
        subcommands = getattr(command, "commands", {})
        if subcommands:
            inner, rest = subcommands[rest[0]], rest[1:]
        if name == "dump-log":
            continue  # its file is not there
        inner.make_context(name, rest)  # UsageError for what it does not know
