"""One wheel for the session, built from the unpacked source archive, in an environment of its own.

The environment is fresh but for a `.pth` file that makes the locked dependencies of the tests' own
environment visible, so nothing is downloaded. That directory is only listed, so the editable
kafka2011 that stands in it is not.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import ROOT

PIP = (sys.executable, "-m", "pip")
OFFLINE = ("--quiet", "--no-deps", "--no-build-isolation")
BUILD_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


def run(*words: str | Path, cwd: Path, **environment: str) -> str:
    """Standard output of a command that must end with status 0; its errors are in the failure."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA2011_", "PYTHON"))}
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**inherited, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def clone(to: Path) -> Path:
    """What a build reads, as a clone has it: links are links, and nothing was built yet."""
    unwanted = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    for name in ("kafka2011", "broker", "consumer", "producer", "services", "spark-jobs"):
        shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=unwanted)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, to / path.name)
    return to


@dataclass(frozen=True)
class Environment:
    directory: Path

    @property
    def python(self) -> Path:
        return self.directory / "bin/python"

    @property
    def command(self) -> Path:
        return self.directory / "bin/kafka2011"

    def install(self, *words: str | Path, **settings: str) -> None:
        pip = (*PIP, "--python", self.python, "install", *OFFLINE, "--no-index")
        run(*pip, *words, cwd=self.directory, **settings)


def new_environment(directory: Path) -> Environment:
    run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=directory)
    made = Environment(directory)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = run(made.python, "-c", ask, cwd=directory).strip()
    # In ASCII, whatever the path: an isolated Python under LC_ALL=C can read nothing else.
    locked = f"import sys; sys.path.append({sysconfig.get_path('purelib')!a})\n"
    Path(site, "locked.pth").write_text(locked, encoding="ascii")
    return made


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, unpacked."""
    directory = tmp_path_factory.mktemp("source")
    tree = clone(tmp_path_factory.mktemp("clone"))
    run(sys.executable, "-c", BUILD_SDIST, directory, cwd=tree)
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(directory, filter="data")
    return directory / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", *OFFLINE, "-w", directory, source, cwd=directory)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def wheel_names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        return opened.namelist()


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = new_environment(tmp_path_factory.mktemp("environment"))
    environment.install(wheel)
    return environment
