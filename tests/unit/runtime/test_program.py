"""What is printed as a command can be pasted."""

import sysconfig
from pathlib import Path

import pytest

from kafka2011.runtime.program import program


@pytest.mark.parametrize(
    ("scripts", "path", "printed"),
    [
        ("clone/.venv/bin", "", ".venv/bin/kafka2011"),
        # An activated environment: in a second terminal there is none.
        ("clone/.venv/bin", "clone/.venv/bin", ".venv/bin/kafka2011"),
        ("my envs/bin", "my envs/bin", "kafka2011"),
        ("clone/.venv/bin", "other/bin", ".venv/bin/kafka2011"),  # another installation's name
        ("my envs/bin", "", "'TOP/my envs/bin/kafka2011'"),
        ("nowhere", "", "/usr/bin/python -m kafka2011"),
    ],
)
def test_a_command_is_printed_as_the_shell_takes_it(
    scripts: str, path: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("clone/.venv/bin", "other/bin", "my envs/bin"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "kafka2011").touch(0o755)
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.setenv("PATH", str(tmp_path / path) if path else "")
    monkeypatch.setattr("sys.executable", "/usr/bin/python")
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path / scripts))
    assert program() == printed.replace("TOP", str(tmp_path))
