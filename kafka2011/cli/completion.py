"""`kafka2011 --install-completion` and what the shell asks for at each Tab.

The commands are those of the table; only the one that the line already names is imported.
"""

from typing import Any

import typer
from typer._click import shell_completion  # typer has no public name for it
from typer.core import TyperGroup

from kafka2011.cli.commands import COMMANDS
from kafka2011.cli.help import click_command

VARIABLE = "_KAFKA2011_COMPLETE"  # set by the shell's function, as typer names it
OPTIONS = ("--install-completion", "--show-completion")


class _Commands(TyperGroup):
    """The table as a group of commands, imported one by one."""

    def list_commands(self, _context: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: Any, name: str) -> Any:
        return click_command(COMMANDS[name]) if name in COMMANDS else None

    def shell_complete(self, _context: Any, incomplete: str) -> list[Any]:
        found = [name for name in COMMANDS if name.startswith(incomplete)]
        return [shell_completion.CompletionItem(name, help=COMMANDS[name].about) for name in found]


def complete(arguments: list[str]) -> None:
    """Install or print the shell's function, or answer it; exits."""
    app = typer.Typer(cls=_Commands)
    app.callback()(lambda: None)
    app(args=arguments, prog_name="kafka2011")
