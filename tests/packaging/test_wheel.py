"""The wheel holds kafka2011 whole, and nothing of it gets in the way of a user's own packages."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.packaging.conftest import Environment, clone, new_environment, run
from tests.support.brokers import RunningBroker

pytestmark = pytest.mark.slow

# Packages that a project often has; all but the last few once came with an install of kafka2011.
COMMON_NAMES = ("services", "consumer", "events", "cli", "broker", "producer", "protocol", "tests")
PROGRAM = Path(__file__).with_name("user_program.py")
WRONG_PROGRAM = Path(__file__).with_name("wrong_program.py")

# What the extras `spark` and `web` bring.
EXTRAS = ("pyspark", "pyarrow", "deltalake", "pandas", "numpy", "starlette", "uvicorn")
WITHOUT_EXTRAS = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({EXTRAS}))
runpy.run_path("program.py", run_name="__main__")
"""

# Imports all modules of an installed package, and prints those that are compiled.
IMPORT_ALL = """
import importlib, json, pkgutil, sys
import kafka2011
names = [m.name for m in pkgutil.walk_packages(kafka2011.__path__, "kafka2011.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(json.dumps({name: sys.modules[name].__file__ for name in names if name in sys.modules}))
"""


def files_of_the_tree() -> set[str]:
    """The files of the package as the tree has them, behind the links too."""
    return {
        str(Path(folder, name).relative_to(ROOT))
        for folder, _, names in os.walk(ROOT / "kafka2011", followlinks=True)
        for name in names
        if not folder.endswith("__pycache__") and not name.endswith((".so", ".c"))
    }


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project with packages of the most common names, and a program that uses ours."""
    directory = tmp_path_factory.mktemp("project")
    for name in COMMON_NAMES:
        (directory / name).mkdir()
        (directory / name / "__init__.py").write_text(f'MINE = "{name}"\n')
    own = "".join(f"import {name}\nassert {name}.MINE\n" for name in COMMON_NAMES)
    (directory / "own.py").write_text(own)
    program = PROGRAM.read_text().replace("import sys\n", "import sys\n\nimport own\n")
    program = program.replace("def main", "assert own\n\n\ndef main")
    (directory / "program.py").write_text(program)
    return directory


@pytest.fixture
def port(installed: Environment, project: Path, tmp_path: Path) -> Iterator[int]:
    """Of a broker that the installed command runs, started in the user's project."""
    settings = ["brokerid=0", "port=0", "enable.zookeeper=false", f"log.dir={tmp_path / 'logs'}"]
    options = [word for setting in settings for word in ("--set", setting)]
    with RunningBroker(
        [str(installed.command), "broker", *options],
        tmp_path / "logs",
        tmp_path / "broker.log",
        {"PYTHONPATH": ""},
        cwd=project,
    ) as broker:
        broker.wait_serving()
        yield broker.port
        assert broker.stop() == 0


def test_the_wheel_holds_two_names_and_a_script(wheel_names: list[str]) -> None:
    tops = {name.partition("/")[0] for name in wheel_names}
    others = {name for name in tops if name.endswith((".dist-info", ".data"))}
    assert tops - others == {"kafka2011", "pyspark_kafka2011.py"}
    (script,) = (name for name in wheel_names if ".data/" in name)
    assert script.endswith(".data/scripts/kafka2011-spark-python")


def test_the_wheel_holds_every_file_of_the_package(wheel_names: list[str]) -> None:
    """Built from the source archive, so that the archive holds them too."""
    code = {name for name in wheel_names if name.startswith("kafka2011/")}
    compiled = {name.partition(".")[0] for name in code if name.endswith(".so")}
    tree = files_of_the_tree()
    left_out = {name for name in tree if name.endswith((".pyx", ".pxd", ".h"))}
    assert {name for name in code if not name.endswith(".so")} == tree - left_out
    assert compiled == {name.removesuffix(".pyx") for name in tree if name.endswith(".pyx")}
    assert "kafka2011/py.typed" in code


def test_the_source_archive_holds_files_and_no_links(source: Path) -> None:
    assert not [path for path in source.rglob("*") if path.is_symlink()]
    assert (source / "kafka2011/protocol/_hot_compiled.pyx").is_file()


def test_every_installed_module_can_be_imported(installed: Environment, project: Path) -> None:
    loaded = json.loads(run(installed.python, "-c", IMPORT_ALL, cwd=project))
    wanted = {
        name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for name in files_of_the_tree()
        if name.endswith(".py") and not name.endswith("__main__.py")
    }
    assert wanted - set(loaded) == {"kafka2011"}
    assert all(Path(path).is_relative_to(installed.directory) for path in loaded.values())


def test_the_command_stands_beside_a_projects_own_packages(
    installed: Environment, project: Path
) -> None:
    ask = "import kafka2011 as k; print(k.__version__)"
    version = run(installed.python, "-c", ask, cwd=project)
    for command in ([installed.command], [installed.python, "-m", "kafka2011"]):
        said = run(*command, "version", cwd=project)
        assert said == f"kafka2011 {version.strip()} (compiled)\n"


def test_workers_of_spark_run_the_installed_script(installed: Environment, project: Path) -> None:
    ask = (
        "import os; from kafka2011.services.warehouse import session;"
        "os.environ.pop('PYSPARK_PYTHON', ''); session.prepare_environment();"
        "print(os.environ['PYSPARK_PYTHON'])"
    )
    script = run(installed.python, "-c", ask, cwd=project).strip()
    assert script == str(installed.directory / "bin/kafka2011-spark-python")
    found = run(script, "-c", "import kafka2011; print(kafka2011.__path__[0])", cwd=project)
    assert Path(found.strip()).is_relative_to(installed.directory)


def test_a_users_program_stands_beside_its_own_packages(
    installed: Environment, project: Path, port: int
) -> None:
    said = run(installed.python, "program.py", str(port), cwd=project)
    assert said == "[(b'hello', 15), (b'world', 30)] Consumer\n"


def test_a_users_program_needs_no_extras(installed: Environment, project: Path, port: int) -> None:
    said = run(installed.python, "-c", WITHOUT_EXTRAS, str(port), cwd=project)
    assert said.endswith("Consumer\n")


def test_the_page_for_users_of_pip_runs(installed: Environment, project: Path, port: int) -> None:
    page = (ROOT / "docs/pip.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    said = run(installed.python, "-c", program.replace("9092", str(port)), cwd=project)
    assert said == "hello\nworld\n"
    assert "pip wheel --no-deps" in page  # as the fixture `wheel` makes it
    assert set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    ) == {
        *re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE),
        "test",
    }


def test_a_users_program_passes_strict_type_checking(
    installed: Environment, project: Path, tmp_path: Path
) -> None:
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.python]
    mypy += ["--cache-dir", str(tmp_path / "cache"), "--hide-error-context"]
    assert "Success" in run(*mypy, "program.py", cwd=project)
    # The types are those of the wheel: each wrong use is found, and nothing else.
    text = WRONG_PROGRAM.read_text()
    (project / "wrong.py").write_text(text)
    found = subprocess.run([*mypy, "wrong.py"], cwd=project, capture_output=True, text=True).stdout
    wrong = {number for number, line in enumerate(text.splitlines(), 1) if "# wrong" in line}
    assert {int(number) for number in re.findall(r"wrong\.py:(\d+): error", found)} == wrong, found
    assert 'did you mean "broker_list"?' in found


@pytest.fixture(scope="session")
def editable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, Path]:
    """An editable install of a clone, on a machine without a C compiler; and the clone."""
    tree = clone(tmp_path_factory.mktemp("clone"))
    environment = new_environment(tmp_path_factory.mktemp("environment"))
    environment.install("-e", tree, CC="/bin/false")
    return environment, tree


def test_an_editable_install_adds_the_same_two_names(
    editable: tuple[Environment, Path], tmp_path: Path
) -> None:
    environment, tree = editable
    names = [*COMMON_NAMES, "coordination", "runtime", "spark-jobs", "deploy"]
    names += ["kafka2011", "kafka2011.broker", "kafka2011.services.audit", "pyspark_kafka2011"]
    ask = "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if u.find_spec(n)])"
    found = run(environment.python, "-c", ask, *names, cwd=tmp_path).split()
    assert [name.partition(".")[0] for name in found] == ["kafka2011"] * 3 + ["pyspark_kafka2011"]
    where = "import kafka2011.broker as b; print(b.__file__)"
    assert run(environment.python, "-c", where, cwd=tmp_path).startswith(str(tree))


def test_an_install_without_a_compiler_uses_the_pure_loops(
    editable: tuple[Environment, Path], tmp_path: Path
) -> None:
    environment, _ = editable
    assert "(pure)" in run(environment.command, "version", cwd=tmp_path)
