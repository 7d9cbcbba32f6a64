"""The `kafka2011` command: finds a command in the table and imports that one only.

Exit statuses: 0 done; 1 the answer is no (an audit that does not balance, a process that failed);
2 the command or a setting was wrong, with one line that says which.
"""

import errno
import importlib
import os
import signal
import sys
from collections.abc import MutableMapping

from kafka2011.cli.commands import COMMANDS
from kafka2011.cli.extras import EXTRA_OF
from kafka2011.cli.launcher import launch, usual_words
from kafka2011.cli.output import reader_has_gone
from kafka2011.runtime import lifeline
from kafka2011.runtime.config import ConfigError, suggestion
from kafka2011.runtime.os_errors import CannotListen
from kafka2011.runtime.program import program

ABOUT = "The LinkedIn deployment of the 2011 Kafka paper, speaking the Kafka 0.7 protocol."
USAGE = "usage: kafka2011 COMMAND [OPTIONS] (kafka2011 COMMAND --help: its options)"
# The errors of writing to a file when there is no more room, or its disk is broken.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
COMPLETION = "completion for your shell: kafka2011 --install-completion"


def help_text() -> str:
    width = max(map(len, COMMANDS)) + 2
    rows = [f"  {name:<{width}}{command.about}" for name, command in COMMANDS.items()]
    return "\n".join([ABOUT, "", USAGE, "", "commands:", *rows, "", COMPLETION])


def import_logging_alone() -> None:
    """Import structlog without rich, which it loads wherever that is installed: 4 MB in each
    process, for tracebacks that none of them prints."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment] # an import of it then fails
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


def run(arguments: list[str]) -> None:
    """Run the command that the first word names with the other words."""
    if "_KAFKA2011_COMPLETE" in os.environ or arguments[:1] in (
        ["--install-completion"],
        ["--show-completion"],
    ):
        from kafka2011.cli.completion import complete

        complete(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        sys.exit(0 if arguments else 2)
    name = "version" if arguments[0] == "--version" else arguments[0]
    if name not in COMMANDS:
        hint = suggestion(name, [*COMMANDS, "--version", "--help"])
        what = "option" if name.startswith("-") else "command"
        _complain(f"no {what} {name!r}{hint} ({program()} --help lists them)")
        sys.exit(2)
    import_logging_alone()
    command = COMMANDS[name]
    try:
        words = usual_words(command, arguments[1:])
        if words is not None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            launch(words.process, words.file, words.settings, **words.by_setting)
        from kafka2011.cli.help import click_command, run_command

        made = click_command(command)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run_command(made, name, arguments[1:], command.settings_here)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = EXTRA_OF.get(package)
        if extra != "spark":  # which `sql` may need, too, and which brings all of `sql`
            extra = command.extra or extra
        if not extra or package == "kafka2011":
            raise
        _complain(f"{name} needs {package}: pip install 'kafka2011[{extra}]'")
        sys.exit(1)
    except CannotListen as error:
        from kafka2011.cli.output import fail

        fail(str(error), command=name)


def _complain(text: str) -> None:
    print(f"kafka2011: {text}", file=sys.stderr)


def accept_all_file_names(environment: MutableMapping[str, str]) -> None:
    """Replace the locale C, so that the JVMs below this process find files whose names are not
    ASCII, as Python does anyway: a JVM's own classes may be under such a name."""
    names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    if next(filter(None, names), "C") in ("C", "POSIX"):
        environment["LC_ALL"] = "C.UTF-8"


def open_absent_streams() -> None:
    """Open /dev/null for each standard stream that was closed at the start: else errors would be
    printed on standard output, and a file of ours would get the stream's number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: the stream's
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def flush_output() -> None:
    """Write what standard output has buffered. Raises OSError when it cannot be written."""
    if not sys.stdout.closed:
        sys.stdout.flush()


def is_of_output(error: OSError) -> bool:
    """Whether the error comes from standard output; if so, what that has buffered is discarded,
    or Python would report it at exit."""
    try:
        flush_output()
    except OSError:
        pass
    else:
        # What is larger than the output's buffer fails at once and leaves nothing in it.
        is_full = error.errno in FULL
        if error.filename is not None or not (is_full or reader_has_gone(sys.stdout.fileno())):
            return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def is_of_directory(error: OSError) -> bool:
    """Whether it says that the current directory was deleted: no relative path leads anywhere."""
    if not isinstance(error, FileNotFoundError) or error.filename is not None:
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def main() -> None:
    # Ctrl-C while modules are being loaded ends the process: an exception there is printed.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    open_absent_streams()
    lifeline.hold()
    accept_all_file_names(os.environ)
    try:
        try:
            run(sys.argv[1:])
        finally:
            flush_output()
    except ConfigError as error:
        _complain(str(error))
        sys.exit(2)
    except OSError as error:
        if not is_of_output(error):
            if not is_of_directory(error):
                raise
            _complain("the current directory is not there any more: change to another one")
        elif not isinstance(error, BrokenPipeError):  # else its reader has what it wanted
            _complain(f"cannot write the output: {error.strerror}")
        sys.exit(1)
    except KeyboardInterrupt:  # also while the command's modules are still being loaded
        sys.exit(130)


if __name__ == "__main__":
    main()
