"""Runs the click command of a row of the table, with one form for the values in every `--help`, and
one line for every mistake in its words.

typer would print `{statement}`, `<list[str]>` and `<bool>`; here it is STATEMENT, TEXT and, for an
option without a value, nothing. Of several spellings of an option the first is shown; the others
are those of 0.7 or of earlier versions.
"""

import importlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, NoReturn, get_args, get_origin

import typer
from typer._click.exceptions import (
    BadParameter,
    ClickException,
    NoArgsIsHelpError,
    NoSuchOption,
    UsageError,
)
from typer._coercion import build_runtime_param
from typer.core import TyperArgument
from typer.main import get_command

from kafka2011.cli.commands import Command, Process
from kafka2011.cli.output import fail
from kafka2011.runtime.config import suggestion
from kafka2011.runtime.program import program

# By the type that typer gives a parameter, or the elements of a list.
VALUES = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "Path": "PATH", "bool": ""}
# What a wrong value should have been, in our words instead of pydantic's.
NUMBERS = {int: "a whole number", float: "a number"}
_NO_CHOICE = re.compile(r"'([^']*)' is not one of ")


def app_of(command: Command) -> typer.Typer:
    """The typer app of a command; imports its module, or the launcher of processes."""
    if isinstance(command.run, Process):
        from kafka2011.cli.process_app import process_app

        return process_app(command.run)
    found: typer.Typer = importlib.import_module(command.run).app
    return found


def run_command(made: Any, name: str, words: list[str], settings_here: str = "") -> NoReturn:
    """Run a click command with the words behind its name, and exit: with status 2 and one line when
    a word is wrong. `settings_here` is that of its row."""
    module, _, function = settings_here.partition(":")
    here = getattr(importlib.import_module(module), function) if module else None
    try:
        status = made(args=words, prog_name=f"{program()} {name}", standalone_mode=False, obj=here)
    except NoArgsIsHelpError as error:
        print(error.message)
        raise SystemExit(error.exit_code) from None
    except ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else f"{program()} {name}"
        said = f"{_slip(error)} ({path} --help says what it takes)"
        fail(said, error.exit_code, command=path.removeprefix(program()).strip())
    raise SystemExit(status if isinstance(status, int) else 0)


def _slip(error: ClickException) -> str:
    """What is wrong with the words, without a capital letter first and a full stop last."""
    if isinstance(error, NoSuchOption) and error.ctx is not None:
        command: Any = error.ctx.command
        option = error.option_name.lstrip("-")  # any short one with dashes would resemble --help
        hint = suggestion(option, _long_options(command))
        hint = hint.replace("did you mean ", "did you mean --")
        if not hint and not getattr(command, "invoke_without_command", True):
            hint = f"; a command comes first: {', '.join(command.commands)}"
        if not hint and error.ctx.parent is not None:
            group: Any = error.ctx.parent.command
            having = [one for one, sub in group.commands.items() if option in _long_options(sub)]
            if having:
                name = error.ctx.parent.command_path.removeprefix(program()).strip()
                hint = f"; {name} {' and '.join(having)} {'has' if len(having) == 1 else 'have'} it"
        return f"no option {error.option_name}{hint}"
    said = error.format_message()
    if "unexpected extra argument" in said:
        said += "; a value with spaces needs quotes around it"
    return (said[:1].lower() + said[1:]).removesuffix(".")


def _long_options(command: Any) -> list[str]:
    """The names of a command's options, without the dashes in front."""
    words = [word for parameter in command.params for word in parameter.opts]
    return ["help", *(word.removeprefix("--") for word in words if word.startswith("--"))]


def click_command(command: Command) -> Any:
    """The command, and its subcommands if it has any, as click runs it."""
    made: Any = get_command(app_of(command))
    if hasattr(made, "commands"):
        made.resolve_command = _naming_commands(made.commands, made.resolve_command)
    for one in (made, *getattr(made, "commands", {}).values()):
        one.help = _paragraphs(one.help or "")
        for parameter in (*one.params, one.get_help_option(typer.Context(one))):
            _name_value(parameter)
            parameter._runtime_param = _Coercion()
        one.format_help = _with_first_spellings(one, one.format_help)
    return made


class _Coercion:
    """Converts values as typer does, but those of the right type already, such as defaults and
    texts, without pydantic, whose import and models take longer than most commands."""

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        wanted = param.type_descriptor.annotation
        is_plain = wanted in (str, int, float, bool) and type(value) is wanted
        if (
            value is None
            or is_plain
            or (get_origin(wanted) is Literal and value in get_args(wanted))
        ):
            return value
        try:
            return build_runtime_param(param.type_descriptor).coerce(value, param=param, ctx=ctx)
        except BadParameter as error:
            if wanted in NUMBERS and "unable to parse" in error.message:
                error.message = f"{value!r} is not {NUMBERS[wanted]}"
            else:
                error.message = in_our_words(error.message, param.type_descriptor.choices or ())
            raise


def in_our_words(said: str, choices: Iterable[object]) -> str:
    """What pydantic says of a value, without its own words, and with the choice probably meant."""
    said = said.removesuffix(".").replace("Value error, ", "").replace("Input should", "it must")
    slip = _NO_CHOICE.search(said)
    return said + (suggestion(slip[1], [str(one) for one in choices]) if slip else "")


def _naming_commands(commands: Iterable[str], resolve: Callable[..., Any]) -> Callable[..., Any]:
    """`resolve` with an error about an unknown subcommand that names the one probably meant, or
    lists all."""

    def resolved(context: Any, words: list[str]) -> Any:
        try:
            return resolve(context, words)
        except UsageError as error:
            if words[0] not in commands and not words[0].startswith("-"):
                hint = suggestion(words[0], commands) or f"; there are: {', '.join(commands)}"
                error.message = f"no command {words[0]!r}{hint}"
            raise

    return resolved


def _paragraphs(text: str) -> str:
    """The text with each paragraph as one line, for wrapping to the terminal's width, and with
    examples that can be pasted."""
    whole = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    return whole.replace("For example: kafka2011 ", f"For example: {program()} ")


def _with_first_spellings(command: Any, format_help: Callable[..., None]) -> Callable[..., None]:
    """`format_help` with the first spelling of each option; parsing is over, so the rest may go."""

    def formatted(context: Any, formatter: Any) -> None:
        for parameter in command.params:
            long = [word for word in parameter.opts if word.startswith("--")]
            parameter.opts = [word for word in parameter.opts if word not in long[1:]]
        format_help(context, formatter)

    return formatted


def _name_value(parameter: Any) -> None:
    is_argument = isinstance(parameter, TyperArgument)
    if parameter.metavar is None:
        words = parameter.bare_type().removeprefix("list[").rstrip("]").split(".")
        choices = parameter.type_descriptor.choices
        if is_argument:
            parameter.metavar = parameter.name.rstrip("_").upper()
        elif choices:
            parameter.metavar = "|".join(map(str, choices))
        else:
            parameter.metavar = VALUES.get(words[-1], words[-1].upper())
    if is_argument:
        usage = parameter.metavar if parameter.required else f"[{parameter.metavar}]"
        if parameter.nargs != 1 and not usage.endswith("..."):
            usage += "..."
        parameter.get_usage_pieces = lambda _context: [usage]
        parameter.display_type_rich = lambda **_: ""
