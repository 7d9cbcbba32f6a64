"""deploy/tools/prepare.sh builds anew what is compiled whenever a source of it has changed,
installs the extras that are missing, and says in one line what it cannot do, before it
installs anything."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from kafka2011.services.warehouse import class_archive
from kafka2011.services.warehouse.session import CLASS_ARCHIVE
from tests import ROOT
from tests.support.waiting import wait_until
from tests.unit import files_below, text_of

COMPILED = [path.relative_to(ROOT) for path in files_below(["kafka2011"], ".pyx", ".pxd", ".h")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout without git, with a virtual environment that only notes its calls: of pip, what
    it is to install."""
    tree = tmp_path / "clone mit äöü"
    (tree / "deploy/tools").mkdir(parents=True)
    for name in (
        *("deploy/tools/prepare.sh", "deploy/tools/locked.sh"),
        *("requirements.lock", "pyproject.toml", "setup.py"),
    ):
        shutil.copy(ROOT / name, tree / name)
    for path in COMPILED:
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    (tree / ".venv/bin").mkdir(parents=True)
    note = """#!/bin/sh
        [ "$*" != --version ] || exec cat "$0.version"
        echo "$*" >> "$0.calls"
        [ ! -e .venv/part.lock ] || cat .venv/part.lock >> "$0.parts"
    """
    command(tree, "python", note)
    (tree / ".venv/bin/python.version").write_text("Python 3.11.7\n", encoding="utf-8")
    command(tree, "java", "#!/bin/sh\n")
    return tree


def command(tree: Path, name: str, text: str) -> None:
    """Put a command into the virtual environment, which is first in the PATH."""
    path = tree / ".venv/bin" / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def start(tree: Path, *extras: str, **variables: str) -> subprocess.Popen[str]:
    inherited = {k: v for k, v in os.environ.items() if k not in ("VENV", "JAVA_HOME", "PYTHON")}
    path = f"{tree}/.venv/bin:{os.environ['PATH']}"
    return subprocess.Popen(
        [tree / "deploy/tools/prepare.sh", *extras],
        env={**inherited, "PATH": path, "LC_ALL": "C", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def prepare(tree: Path, *extras: str, **variables: str) -> subprocess.CompletedProcess[str]:
    with start(tree, *extras, **variables) as process:
        out, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def builds(tree: Path, *extras: str) -> int:
    """How often the project has been built after one more `make prepare`."""
    done = prepare(tree, *extras)
    assert done.returncode == 0, done.stderr
    calls = text_of(tree / ".venv/bin/python.calls").splitlines()
    return sum(call.endswith("-e .") for call in calls)


def installed(tree: Path) -> set[str]:
    """Of some packages, those that pip has been given."""
    names = set(re.findall(r"^([a-z]+)==", text_of(tree / ".venv/bin/python.parts"), re.M))
    return names & {"cython", "pyspark", "starlette", "polars", "mypy"}


def test_extras_are_installed_when_they_are_needed_and_stay(tree: Path) -> None:
    assert builds(tree) == 1
    assert installed(tree) == {"cython", "pyspark", "starlette"}
    assert builds(tree, "test") == 2
    assert installed(tree) == {"cython", "pyspark", "starlette", "polars", "mypy"}
    assert builds(tree) == builds(tree, "test") == 2
    # What was installed besides is installed anew with all others.
    (tree / ".venv/bin/python.parts").unlink()
    with (tree / "setup.py").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert builds(tree) == 3
    assert "mypy" in installed(tree)


def test_the_class_archive_is_made_for_tests_alone_and_anew_with_what_is_installed(
    tree: Path,
) -> None:
    archive = tree / ".venv" / CLASS_ARCHIVE.relative_to(sys.prefix)

    def made(*extras: str) -> int:
        builds(tree, *extras)
        calls = text_of(tree / ".venv/bin/python.calls").splitlines()
        return calls.count(f"-m {class_archive.__name__}")

    assert made() == 0
    assert made("test") == 1
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert made("test") == 1
    with (tree / "setup.py").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert made() == 1
    assert not archive.exists(), "it is not for the jars of now"
    assert made("test") == 2


@pytest.mark.parametrize(
    ("free_kb", "variables", "line"),
    [
        (2_047_999, {}, "has 1999 MB of free disk space and needs 3000 MB"),
        (9_000_000, {"VENV": "/proc/kafka2011"}, "/proc/kafka2011 is not writable for "),
        (9_000_000, {"VENV": "/proc"}, "/proc is not writable for "),
    ],
    ids=["disk", "rights", "rights in a directory that is there"],
)
def test_what_cannot_be_installed_is_one_line_and_nothing_is(
    tree: Path, free_kb: int, variables: dict[str, str], line: str
) -> None:
    command(tree, "stat", f"#!/bin/sh\necho {free_kb} 1024\n")
    done = prepare(tree, **variables)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert line in done.stderr
    assert not (tree / ".venv/bin/python.calls").exists()


def test_a_mount_point_with_a_space_is_no_full_disk(tree: Path) -> None:
    """`/media/me/My Disk has 0 MB of free disk space` was said of an empty one."""
    command(tree, "df", "#!/bin/sh\necho; echo /dev/sdb1 9999 9 9000000 1% /media/me/My Disk\n")
    assert builds(tree) == 1


def test_an_environment_of_another_user_is_left_as_it_is(tree: Path) -> None:
    """Its Python may be one that only the other may run: it looked as if there were none."""
    builds(tree)
    python = tree / ".venv/bin/python"
    python.chmod(0o644)
    (tree / ".venv/.probe").mkdir()  # also root cannot write there then
    done = prepare(tree)
    [line] = done.stderr.splitlines()
    assert (done.returncode, python.exists()) == (1, True)
    assert ".venv is not writable for " in line


def test_another_system_than_linux_is_refused_in_one_line_that_names_the_ways(tree: Path) -> None:
    command(tree, "uname", "#!/bin/sh\necho Darwin\n")
    done = prepare(tree)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "Linux is needed, and this is Darwin: " in done.stderr
    assert "### On Windows or a Mac?" in text_of("docs/faq.md")
    assert not (tree / ".venv/bin/python.calls").exists()


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ('openjdk version "17.0.15" 2025-04-15', ""),
        ('java version "25" 2025-09-16 LTS', ""),
        ("something else", ""),
        ('openjdk version "11.0.2" 2019-01-15', "and java is Java 11: "),
        ('java version "1.8.0_402"', "and java is Java 8: "),
    ],
)
def test_a_java_that_is_too_old_is_one_line(tree: Path, release: str, line: str) -> None:
    """Spark said so in the middle of a demo."""
    builds(tree)
    command(tree, "java", f"#!/bin/sh\necho '{release}' >&2\n")
    done = prepare(tree)
    assert (done.returncode, line in done.stderr) == (bool(line), True)
    assert done.stderr.count("\n") == bool(line)


def test_a_java_home_without_java_is_named(tree: Path) -> None:
    """A package was installed for it, or asked for, while the one of the PATH would do."""
    builds(tree)
    done = prepare(tree, JAVA_HOME="/nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith("kafka2011: JAVA_HOME=/nowhere has no bin/java: unset it")


def test_the_extensions_are_found() -> None:
    text = text_of("setup.py")
    assert len(COMPILED) >= 6
    assert all(str(path) in text for path in COMPILED)


def test_what_cannot_be_built_anew_is_not_there_as_it_was_built_before(tmp_path: Path) -> None:
    """An upgrade after the compiler is gone: loops of the old version ran beside the new one."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (tmp_path / "setup.py").write_text(text_of("setup.py"), encoding="utf-8")
    build = tmp_path / f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    stale = []
    for source in (path for path in COMPILED if path.suffix == ".pyx"):
        for root in (tmp_path, build):
            stale.append((root / source).with_suffix(suffix))
            stale[-1].parent.mkdir(parents=True, exist_ok=True)
            stale[-1].touch()
            os.utime(stale[-1], (0, 0))
        (tmp_path / source).touch()
    for source in (path for path in COMPILED if path.suffix != ".pyx"):
        (tmp_path / source).touch()
    words = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    environment = os.environ | {"CC": "false"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("failed") >= len(stale) / 2
    assert [path for path in stale if path.exists()] == []


def test_a_change_of_any_compiled_source_is_a_new_build(tree: Path) -> None:
    assert builds(tree) == 1
    assert builds(tree) == 1
    for number, path in enumerate(COMPILED, 2):
        with (tree / path).open("a", encoding="utf-8") as file:
            file.write("\n")
        os.utime(tree / path, (0, 0))  # as an archive may bring it
        assert builds(tree) == number, path
        assert (tree / path).stat().st_mtime > 0, "the build would take it for unchanged"


def test_after_an_upgrade_that_was_cut_off_the_version_of_before_is_installed_anew(
    tree: Path,
) -> None:
    """Of both, what had been installed until then stayed, and status 0 was said."""
    assert builds(tree, "test") == 1
    python, lock = tree / ".venv/bin/python", text_of(tree / "requirements.lock")
    whole = text_of(python)
    (tree / "requirements.lock").write_text(lock + "\n", encoding="utf-8")
    fails = 'case "$*" in *--require-hashes*) exit 1;; esac\n'
    python.write_text(whole + fails, encoding="utf-8")
    assert prepare(tree).returncode == 1
    (tree / "requirements.lock").write_text(lock, encoding="utf-8")
    python.write_text(whole, encoding="utf-8")
    (tree / ".venv/bin/python.parts").unlink()
    assert builds(tree) == 2
    assert "mypy" in installed(tree), "it was there before"


def test_a_set_up_that_fails_ends_the_build_beside_it(tree: Path) -> None:
    """It went on compiling, into the files that the next set-up builds."""
    python = tree / ".venv/bin/python"
    python.write_text(
        text_of(python)
        + '[ "$1" != setup.py ] || { echo $$ > .venv/building; exec sleep 60; }\n'
        + "grep -q pyspark .venv/part.lock || exit 0\n"
        + "until [ -s .venv/building ]; do :; done; exit 1\n",
        encoding="utf-8",
    )
    assert prepare(tree).returncode == 1
    process = int(text_of(tree / ".venv/building"))
    wait_until(lambda: not Path(f"/proc/{process}").exists(), "the build to end", 10)


def test_two_at_the_same_time_install_one_after_the_other(tree: Path) -> None:
    """Each removed what the other was unpacking."""
    python = tree / ".venv/bin/python"
    held = '[ "$1 $2 $3" != "-m pip install" ] || read _ < .venv/bin/go\n'
    python.write_text(text_of(python) + held, encoding="utf-8")
    os.mkfifo(tree / ".venv/bin/go")
    with (
        start(tree) as first,
        start(tree, "test") as second,
        os.fdopen(os.open(tree / ".venv/bin/go", os.O_RDWR), "wb", buffering=0) as go,
    ):
        lines = {str(process.stderr and process.stderr.readline()) for process in (first, second)}
        assert "==> waiting for another make, which prepares .venv\n" in lines
        # At once, as a shell that runs it reads it piece by piece, and the build may start it.
        free = python.with_name("free")
        free.write_text(text_of(python).removesuffix(held), encoding="utf-8")
        free.chmod(0o755)
        free.replace(python)
        go.write(b"\n")
        printed = [process.communicate(timeout=60) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), printed
    assert "mypy" in installed(tree)


def make_of_another(tree: Path) -> str:
    """A Python beside the environment, which makes an environment as it was: its path."""
    shutil.copytree(tree / ".venv", tree / "whole")
    other = tree / "python 3"
    other.write_text(
        '#!/bin/sh\n[ "$1 $2 $3" = "-m venv --clear" ] || exit 0\n'
        'rm -rf "$4"/* && cp -r whole/* "$4"\n',
        encoding="utf-8",
    )
    other.chmod(0o755)
    return str(other)


def test_an_environment_that_was_not_made_to_its_end_is_made_anew(tree: Path) -> None:
    """Ctrl-C, before pip was there: each later `make` ended with `No module named pip`."""
    other = make_of_another(tree)
    command(tree, "python", '#!/bin/sh\n[ "$1 $2" != "-m pip" ]\n')
    (tree / ".venv/pyvenv.cfg").touch()
    done = prepare(tree, PYTHON=other)
    assert (done.returncode, installed(tree)) == (0, {"cython", "pyspark", "starlette"}), done
    assert not (tree / ".venv/pyvenv.cfg").exists()


def test_a_directory_that_is_no_environment_is_left_as_it_is(tree: Path) -> None:
    other = make_of_another(tree)
    mine = tree / "mine/work"
    mine.mkdir(parents=True)
    done = prepare(tree, PYTHON=other, VENV="mine")
    assert (done.returncode, mine.is_dir()) == (1, True)
    assert "kafka2011: mine is there and is no virtual environment: remove it" in done.stderr


def test_another_python_behind_the_same_name_gets_what_the_last_one_had(tree: Path) -> None:
    """As after an upgrade of the system: it found none of the packages, and status 0 was said."""
    assert builds(tree, "test") == 1
    (tree / ".venv/bin/python.version").write_text("Python 3.13.5\n", encoding="utf-8")
    (tree / ".venv/bin/python.parts").unlink()
    assert builds(tree) == 2
    assert {"pyspark", "mypy"} <= installed(tree)
    (tree / ".venv/bin/python.version").write_text("Python 3.13.6\n", encoding="utf-8")
    assert builds(tree) == 2


def test_an_environment_of_an_older_python_is_refused_in_one_line(tree: Path) -> None:
    python = tree / ".venv/bin/python"
    python.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.12\n'
        'case "$2" in *version_info*) exit 1;; esac\n',
        encoding="utf-8",
    )
    done = subprocess.run([tree / "deploy/tools/prepare.sh"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        "kafka2011: .venv has Python 3.10.12, and Python 3.11 or newer is needed: "
        "remove .venv and repeat\n",
    )
