"""`kafka2011 embedded demo --input`: what cannot be sent is refused before anything is changed."""

import gzip
import io
import os
import random
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka2011.services.embedded.demo import Demo
from tests import ROOT
from tests.conftest import Run
from tests.support.access_lines import known_lines

LOG = b"".join(one.line + b"\n" for one in known_lines(20, seed=1))


DIRECTORY = b"a directory in its place"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Demo]:
    """The demos that would have run."""
    demos: list[Demo] = []
    monkeypatch.setattr(Demo, "run", lambda demo: demos.append(demo) or 0)
    return demos


@pytest.mark.parametrize(
    ("data", "words", "status", "line"),
    [
        (None, (), 2, "access.log: No such file or directory"),
        (DIRECTORY, (), 2, "access.log/* | kafka2011 embedded demo --input - (make: INPUT=-)"),
        (random.Random(1).randbytes(5000), (), 1, "can be read; line 1 is "),
        (b"", (), 1, "is empty: there is nothing to send"),
        (gzip.compress(LOG, mtime=0)[:-9], (), 1, "its gzip data is damaged or cut off"),
        (LOG, ("--format", "%h %t"), 2, "--format (make: LOG_FORMAT=): the log format lacks"),
        (LOG, ("--format", "%h %t %r %s"), 1, "expected is the given format, %h %t %r %s"),
    ],
)
def test_an_input_that_cannot_be_sent_is_one_line(
    run: Run,
    ran: list[Demo],
    tmp_path: Path,
    *,
    data: bytes | None,
    words: tuple[str, ...],
    status: int,
    line: str,
) -> None:
    path, root = tmp_path / "access.log", tmp_path / "var"
    if data == DIRECTORY:
        path.mkdir()
    elif data is not None:
        path.write_bytes(data)
    done = run("embedded", "demo", "--dir", root, "--input", path, *words)
    assert (done.status, done.out, done.err.count("\n")) == (status, "", 1)
    assert line in done.err
    assert not ran
    assert not root.exists()


def test_standard_input_is_kept_as_a_file(
    run: Run, ran: list[Demo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(LOG)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(packed)))
    done = run(
        "embedded", "demo", "--dir", tmp_path / "var", "--input", "-", "--format", "combined"
    )
    assert done.status == 0
    assert "gzip, 20 of the first 20 lines can be read, dated 2015-05-17" in done.out
    [demo] = ran
    assert demo.config.input_format == "combined"
    assert Path(demo.config.input_path).read_bytes() == packed
    assert Path(demo.config.input_path).is_relative_to(tmp_path / "var")


@pytest.mark.parametrize("is_there", [False, True])
def test_standard_input_that_cannot_be_sent_leaves_nothing_behind(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
) -> None:
    root = tmp_path / "var"
    if is_there:
        root.mkdir()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"hello\n")))
    done = run("embedded", "demo", "--dir", root, "--input", "-")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("kafka2011: input -: nothing of its only line can be read")
    assert root.exists() == is_there
    assert not is_there or [path.name for path in root.iterdir()] == [".kafka2011"]


def test_make_passes_what_it_is_given_as_it_stands() -> None:
    name, notation = 'a b$c "q".log', r'$remote_addr "x" %h \"%r\"'

    def demo(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "-s", "-o", "prepare", "demo", "PYTHON_IN=printf '<%s>'", *words],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
        )

    done = demo(f"INPUT={name}", f"LOG_FORMAT={notation}")
    assert done.stdout.endswith(f"<--input><{name}><--format><{notation}>")
    assert "<--port><18088>" in demo("PORT=18088").stdout
    empty = demo("INPUT=")  # of a variable that was not set, most likely
    assert (empty.returncode, empty.stdout) == (2, "")
    assert "INPUT= is empty" in empty.stderr
    slip = demo("INPUTS=access.log")
    assert (slip.returncode, slip.stdout) == (2, "")
    assert "INPUTS=: no such variable" in slip.stderr
