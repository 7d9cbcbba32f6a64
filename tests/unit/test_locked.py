"""deploy/tools/locked.sh: the part of requirements.lock that an image installs is complete."""

import re
import subprocess
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import ROOT
from tests.unit import text_of

# Requirements of other systems and of other Pythons stand in the lock, but are not installed here.
ENVIRONMENT = {"extra": ""}


def locked(*words: str) -> str:
    done = subprocess.run(
        [ROOT / "deploy/tools/locked.sh", *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def names_in(text: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", text, re.M))


@pytest.mark.parametrize(
    ("words", "has", "has_not"),
    [
        (["sql"], {"duckdb", "deltalake", "pyarrow"}, {"pyspark", "pandas", "mypy"}),
        (["web"], {"starlette", "typer", "uvloop"}, {"pyspark", "pytest", "mypy"}),
        (["web", "spark"], {"starlette", "pyspark", "numpy"}, {"pytest", "mypy"}),
        (["build"], {"cython", "setuptools"}, {"typer"}),
    ],
)
def test_a_part_holds_all_that_its_packages_need(
    words: list[str], has: set[str], has_not: set[str]
) -> None:
    found = names_in(locked(*words))
    assert has <= found
    assert not has_not & found
    for name in found:
        try:
            needed = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:
            continue
        for requirement in needed:
            if requirement.marker is None or requirement.marker.evaluate(ENVIRONMENT):
                assert canonicalize_name(requirement.name) in found, f"{name} needs {requirement}"


def test_all_parts_together_are_the_lock() -> None:
    lock = text_of("requirements.lock")
    entries = "".join(f"{line}\n" for line in lock.splitlines() if not line.startswith("    #"))
    assert sorted(locked("web", "spark", "test").splitlines()) == sorted(entries.splitlines())


def test_an_unknown_extra_is_refused() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        locked("wep")
    assert "pyproject.toml has no extra wep" in failed.value.stderr
