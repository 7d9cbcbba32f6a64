"""What the docs and the help say of the command line is so: commands, options, settings exist."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafka2011.cli.commands import COMMANDS
from kafka2011.cli.help import click_command
from kafka2011.runtime.process_settings import known_names
from tests import ROOT

PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md")),
        *(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "decisions"),
    ]
)

# Options in the docs that are those of other programs.
OF_OTHERS = {
    "docker": {"--build", "--profile", "--volumes"},
    "make": {"--dry-run"},
}
# Commands of which the help has an example.
TOOLS = {
    *(
        "topics",
        "groups",
        "offsets",
        "replicas",
        "zookeeper",
        "verify-rebalance",
        "dump-log",
        "replay-log",
    ),
    *("console-consumer", "console-producer", "simple-consumer", "get-offsets"),
    *("consumer-perf", "producer-perf"),
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9.-]*")


@cache
def leaves(name: str) -> dict[str, Any]:
    """Subcommand -> the command that has the options; the name "" where there are none."""
    command: Any = click_command(COMMANDS[name])
    inner = getattr(command, "commands", None)
    return {"": command, **(inner or {})}


def options_of(command: Any) -> set[str]:
    return {"--help"} | {flag for found in command.params for flag in found.opts}


def code_of(text: str) -> Iterator[str]:
    """The lines of fenced and indented blocks, continued ones as one, and the code spans of
    everything else."""
    for number, part in enumerate(re.split(r"^```.*$", text, flags=re.MULTILINE)):
        lines = re.sub(r"\\\n\s*", " ", part)
        if number % 2:
            yield from lines.splitlines()
        else:
            yield from re.findall(r"^(?: {4}|\t)+(\S.*)$", lines, re.MULTILINE)
            yield from re.findall(r"`([^`]+)`", part)


def invocations(page: Path) -> Iterator[list[str]]:
    """The words after `kafka2011` of each command line on the page."""
    for line in code_of(page.read_text(encoding="utf-8")):
        found = re.match(r"\s*(?:\S*/|python -m )?kafka2011 ([a-z][^#;]*)", line)
        if found:
            yield re.split(r" \| |\s{3,}", found[1])[0].split()


each_command = pytest.mark.parametrize("name", COMMANDS)


def test_commands_and_their_options_exist() -> None:
    for page, words in ((one, words) for one in PAGES for words in invocations(one)):
        line = f"{page}: kafka2011 {' '.join(words)}"
        assert words[0] in COMMANDS, line
        found = leaves(words[0])
        named = [word for word in words[1:] if word in found]
        candidates = [found[named[0]]] if named else list(found.values())
        known = set[str]().union(*map(options_of, candidates))
        assert set(OPTION.findall(" ".join(words))) <= known, line


def test_options_that_are_named_alone_are_of_some_command() -> None:
    commands = [command for name in COMMANDS for command in leaves(name).values()]
    known = set[str]().union(*OF_OTHERS.values(), *map(options_of, commands))
    for page in PAGES:
        spans = [one for one in code_of(page.read_text(encoding="utf-8")) if one.startswith("--")]
        assert {option for span in spans for option in OPTION.findall(span)} <= known, page


def test_settings_that_are_set_exist() -> None:
    for page in PAGES:
        text = "\n".join(code_of(page.read_text(encoding="utf-8")))
        named = set(re.findall(r"--set ([a-z0-9.]+)=", text))
        assert named - {"name"} <= known_names(), page


@each_command
def test_operations_lists_every_command_with_the_words_of_its_help(name: str) -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {COMMANDS[name].about} |" in text


@each_command
def test_examples_in_the_help_parse_and_no_tool_is_without_one(name: str) -> None:
    """An example goes from "For example:" to the end of its paragraph, or to a `<`."""
    texts = [command.help or "" for command in leaves(name).values()]
    pattern = re.compile(r"For example: (\S*kafka2011 .*?)(?:\n\n| < |$)", re.DOTALL)
    examples = [shlex.split(found) for text in texts for found in pattern.findall(text)]
    assert examples or name not in TOOLS
    for program, command, *words in examples:
        assert (Path(program).name, command) == ("kafka2011", name)
        inner = leaves(name).get(words[0])
        if name != "dump-log":  # its file is not there
            # UsageError for what it does not know
            (inner or leaves(name)[""]).make_context(name, words[1:] if inner else words)
