"""How this program is started from a shell: what it prints as a command can be pasted."""

import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path


def program() -> str:
    """The path of this installation's script if it is below the current directory: any shell there
    takes it, even without an activated environment. Otherwise `kafka2011` if a shell finds it by
    that name, else the whole path; without a script `PYTHON -m kafka2011`."""
    script = Path(sysconfig.get_path("scripts"), "kafka2011")
    if not script.is_file():
        return f"{shlex.quote(sys.executable)} -m kafka2011"
    place, found = from_here(script), shutil.which("kafka2011")
    is_found = found is not None and os.path.realpath(found) == os.path.realpath(script)
    return "kafka2011" if is_found and os.path.isabs(place) else shlex.quote(place)


def from_here(path: Path) -> str:
    """The path as it is given in the current directory: relative when it is below that."""
    here, path = Path.cwd(), path.absolute()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
