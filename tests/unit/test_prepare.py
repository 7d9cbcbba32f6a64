"""deploy/tools/prepare.sh builds anew what is compiled whenever a source of it has changed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.unit import files_below, text_of

COMPILED = [path.relative_to(ROOT) for path in files_below(["kafka2011"], ".pyx", ".pxd", ".h")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout without git, with a virtual environment that only notes its calls."""
    (tmp_path / "deploy/tools").mkdir(parents=True)
    for name in ("deploy/tools/prepare.sh", "requirements.lock", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for path in COMPILED:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("python", "java"):
        command = tmp_path / ".venv/bin" / name
        command.write_text('#!/bin/sh\necho "$*" >> "$0.calls"\n', encoding="utf-8")
        command.chmod(0o755)
    return tmp_path


def builds(tree: Path) -> int:
    """How often the project has been built after one more `make prepare`."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("VENV", "JAVA_HOME", "PYTHON")}
    subprocess.run(
        [tree / "deploy/tools/prepare.sh"],
        env={**inherited, "PATH": f"{tree}/.venv/bin:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        timeout=60,
    )
    calls = text_of(tree / ".venv/bin/python.calls").splitlines()
    return sum(call.endswith("-e .") for call in calls)


def test_the_extensions_are_found() -> None:
    text = text_of("setup.py")
    assert len(COMPILED) >= 6
    assert all(str(path) in text for path in COMPILED)


def test_a_change_of_any_compiled_source_is_a_new_build(tree: Path) -> None:
    assert builds(tree) == 1
    assert builds(tree) == 1
    for number, path in enumerate(COMPILED, 2):
        with (tree / path).open("a", encoding="utf-8") as file:
            file.write("\n")
        os.utime(tree / path, (0, 0))  # as an archive may bring it
        assert builds(tree) == number, path
        assert (tree / path).stat().st_mtime > 0, "the build would take it for unchanged"
