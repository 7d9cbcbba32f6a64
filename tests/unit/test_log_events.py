"""Log events have one style of name, so that a search for one finds it: lower_snake_case."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.unit import files_below, text_of

LOGGERS = {"log", "_log"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
STYLE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")


def event_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each event that is logged under a literal name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args or not _is_logging(node.func):
            continue
        for name in _literals(node.args[0]):
            yield node.lineno, name


def _is_logging(called: ast.expr) -> bool:
    """Whether `called` is `log.info` or the like, or a method that is kept in a name `log`."""
    if isinstance(called, ast.Attribute):
        return called.attr in LEVELS and ast.unparse(called.value).split(".")[-1] in LOGGERS
    return isinstance(called, ast.Name) and called.id in LOGGERS


def _literals(argument: ast.expr) -> Iterator[str]:
    if isinstance(argument, ast.IfExp):
        yield from _literals(argument.body)
        yield from _literals(argument.orelse)
    elif isinstance(argument, ast.Constant):
        yield str(argument.value)


def test_log_event_names_are_lower_snake_case() -> None:
    found = [
        (path, line, name)
        for path in files_below(["kafka2011", "spark-jobs"], ".py")
        for line, name in event_names(ast.parse(text_of(path)))
    ]
    assert len(found) > 100, "the check finds the calls"
    assert [event for event in found if not STYLE.fullmatch(event[2])] == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("log.info('a_b')", ["a_b"]),
        ("self._log.warning('no-good', reason=1)", ["no-good"]),
        ("log('late' if x else 'in time')", ["late", "in time"]),
        ("parser.error('not a log event')", []),
    ],
)
def test_the_check_reads_literal_names(source: str, names: list[str]) -> None:
    assert [name for _, name in event_names(ast.parse(source))] == names
