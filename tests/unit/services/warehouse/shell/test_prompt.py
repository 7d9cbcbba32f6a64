"""The prompt of `kafka2011 pyspark`: a script on standard input ends as Python ends with it."""

import io
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kafka2011.services.warehouse.shell.prompt import run_shell


class Session:
    """A Spark session for statements that ask nothing of it."""

    version = "4"
    sparkContext = None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`status(stdin)`: what the process ends with after these statements."""

    def run(stdin: io.StringIO) -> object:
        monkeypatch.setattr("sys.stdin", stdin)
        try:
            run_shell(Session(), tmp_path, {"zk.connect": "nowhere"})
        except SystemExit as ended:
            return ended.code or 0
        return 0

    return run


@pytest.mark.parametrize(
    ("script", "ended", "out", "err"),
    [
        ("1 + 1\nprint(F.__name__)\n", 0, "2\npyspark.sql.functions\n", ""),
        ("print(1)\nexit(3)\nprint(2)\n", 3, "1\n", ""),
        ("print(1)\nexit()\n", 0, "1\n", ""),
        ("print(1)\n1 / 0\nprint(2)\n", 1, "1\n", "in <module>\nZeroDivisionError: division by"),
        ("print(1)\nprint(2\n", 1, "", "SyntaxError: '(' was never closed"),
        ("print(1)\nreturn\n", 1, "", "SyntaxError: 'return' outside function"),
        # No empty line behind them, as in a file.
        ("for n in (1, 2):\n    print(n)\nif n == 2:\n    print('both')", 0, "1\n2\nboth\n", ""),
    ],
    ids=["whole", "exit", "exit without status", "exception", "syntax", "return", "blocks"],
)
def test_a_script_ends_as_with_python_and_shows_the_values_of_its_expressions(
    status, capsys: pytest.CaptureFixture[str], *, script: str, ended: int, out: str, err: str
) -> None:
    assert status(io.StringIO(script)) == ended
    found = capsys.readouterr()
    assert found.out == out
    assert err in found.err
    assert "prompt.py" not in found.err
    assert bool(found.err) == bool(err)


def test_a_terminal_goes_on_behind_an_error_and_ends_with_the_status_of_exit(
    status, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(Terminal("1 / 0\nprint('on')\nexit(3)\n")) == 3
    out, err = capsys.readouterr()
    assert "on\n" in out
    assert "ZeroDivisionError" in err
    assert status(Terminal("print('on')\n")) == 0


def test_a_table_that_cannot_be_opened_is_named_and_no_view(
    status, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_deltalake(tmp_path / "clicks", pa.table({"n": [1]}))
    next(tmp_path.glob("clicks/_delta_log/*.json")).write_bytes(bytes(100))
    assert status(io.StringIO("print('on')\n")) == 0
    out, err = capsys.readouterr()
    assert out == "on\n"
    assert err.startswith("kafka2011 pyspark: table clicks cannot be opened: ")
