"""The architecture as a test: the import arrows, and that the package is the one of this tree.

The arrows are those of ARCHITECTURE.md's table. They are read from the source with `ast`, so that
an import inside a function counts as well.
"""

import ast
import functools
import importlib
import re
from pathlib import Path

from tests import ROOT
from tests.unit import files_below, text_of

PACKAGE = ROOT / "kafka2011"

# room -> the rooms that it may import
BELOW = {"protocol", "coordination", "events", "runtime"}
ARROWS = {
    "protocol": set(),
    "runtime": set(),
    "events": {"runtime"},
    "coordination": {"runtime", "protocol"},
    "broker.log": {"protocol", "runtime"},
    "broker.config": {"broker.log", "runtime"},
    # Of the replication its values only: copies, lineages, steps of a plan.
    "broker.core": {"broker.config", "broker.log", "broker.replication", "protocol", "runtime"},
    "broker.network": {"broker.config", "broker.core", "broker.log", "protocol", "runtime"},
    # Decisions alone: it reaches nothing but lineages.
    "broker.replication": {"protocol"},
    # Carries them out.
    "broker.replica": {
        *("broker.config", "broker.core", "broker.log", "broker.network", "broker.replication"),
        *("coordination", "protocol", "runtime"),
    },
    # Its only way to the logs is broker.core.
    "broker.kafka07": {"broker.config", "broker.core", "broker.network", "protocol", "runtime"},
    "broker": {
        f"broker.{part}"
        for part in ("config", "core", "kafka07", "log", "network", "replica", "replication")
    }
    | {"protocol", "coordination", "runtime"},
    "producer": BELOW,
    "consumer": BELOW,
    # On Spark's own DataFrames; of the producer, where a key's messages go.
    "streams": BELOW | {"producer"},
    "services": BELOW | {"producer", "consumer", "streams"},
    "cli": BELOW
    | {"broker", "broker.config", "broker.log", "broker.replica", "broker.replication"}
    | {"producer", "consumer", "services", "streams"},
}

# A library that only one room may touch.
ONLY_IN = {"kazoo": {"coordination"}}


def room_of(module: str) -> str | None:
    """The longest key of ARROWS that holds `module`, or None for a module that is in no room."""
    rooms = [room for room in ARROWS if f"{module}.".startswith(f"kafka2011.{room}.")]
    return max(rooms, key=len, default=None)


@functools.cache
def imports_of(path: Path) -> set[str]:
    tree = ast.parse(text_of(path))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def sources() -> list[Path]:
    """The modules of every room, by their paths in the package."""
    return [path for path in files_below(["kafka2011"], ".py") if path.parent != PACKAGE]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_imports_follow_the_arrows() -> None:
    for name, path in ((module_name(path), path) for path in sources()):
        here = room_of(name)
        assert here is not None, name
        for imported in imports_of(path):
            there = room_of(imported)
            if there is not None and there != here:
                assert there in ARROWS[here], f"{name} must not import {imported}"
            top = imported.split(".")[0]
            assert here in ONLY_IN.get(top, {here}), f"{name}: only {ONLY_IN[top]} may import {top}"


def test_the_architecture_has_the_same_table() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \| [^|]*\|$", text_of("ARCHITECTURE.md"), re.M)
    stated = {
        room: set(re.findall(r"`([\w.]+)`", imported))
        for rooms, imported in rows
        for room in re.findall(r"`([\w.]+)`", rooms)
    }
    assert {room: stated.get(room) for room in ARROWS} == ARROWS


def test_a_room_that_lists_its_modules_lists_all_of_them() -> None:
    for path in sources():
        names = {beside.stem for beside in path.parent.glob("[!_]*.py")}
        words = set(re.findall(r"\w+", ast.get_docstring(ast.parse(text_of(path))) or ""))
        if path.stem == "__init__" and len(names & words) * 2 >= len(names) > 2:
            # Of these the architecture says what they are.
            assert names - words - {"app", "config"} == set(), path


def test_no_modules_import_each_other_in_a_circle() -> None:
    # Imports inside functions and under TYPE_CHECKING count as well: they hide a circle, no more.
    modules = {module_name(path): path for path in sources()}
    imports = {name: imports_of(path) & modules.keys() - {name} for name, path in modules.items()}
    while leaves := [name for name, needed in imports.items() if not needed & imports.keys()]:
        for name in leaves:
            del imports[name]
    assert {name: needed & imports.keys() for name, needed in imports.items()} == {}


def test_no_service_imports_another() -> None:
    # Services meet in ZooKeeper, in topics and in tables. The audit follows the warehouse's
    # commits, whose form the warehouse owns; the embedded deployment looks at an access log as the
    # frontend will read it; registration is shared by all.
    allowed = {("containers", "embedded"), ("audit", "warehouse"), ("embedded", "frontend")}
    # A trace reads what the mirror and the loads record of a message; the dashboard shows it.
    allowed |= {("trace", "mirror_maker"), ("trace", "warehouse"), ("dashboard", "trace")}
    services = PACKAGE / "services"
    packages = {path.name for path in services.iterdir() if path.is_dir()}
    for path in services.rglob("*.py"):
        here = path.relative_to(services).parts[0]
        ours = {name for name in imports_of(path) if name.startswith("kafka2011.services.")}
        others = packages & {name.split(".")[2] for name in ours} - {here}
        assert all((here, there) in allowed for there in others), f"{path} imports {others}"


def test_the_package_is_loaded_from_this_tree() -> None:
    for name in ("kafka2011", *(f"kafka2011.{room}" for room in ARROWS)):
        module = importlib.import_module(name)
        assert module.__file__ is not None
        assert Path(module.__file__).resolve().is_relative_to(ROOT)


def test_nothing_imports_the_given_folders_by_their_bare_names() -> None:
    # They are importable from the root of a clone, and would be second copies of the modules.
    bare = {path.name for path in PACKAGE.iterdir() if path.is_symlink()}
    assert bare == {"broker", "consumer", "producer", "services"}
    outside = [*ROOT.glob("*.py"), *(ROOT / "spark-jobs").glob("*.py")]
    outside += [*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    folder = f"(?:{'|'.join(bare)})"
    wrong = re.compile(rf"^ *(?:from {folder}[\w.]* import |import (?:.*, )?{folder}\b)", re.M)
    for path in [*sources(), *outside]:
        assert not wrong.search(text_of(path)), f"{path}: write kafka2011 before it"


def test_every_spark_job_is_a_command_and_every_command_a_spark_job() -> None:
    commands = PACKAGE / "services" / "warehouse" / "commands"
    jobs = sorted((ROOT / "spark-jobs").glob("*.py"))
    assert [path.name for path in jobs] == sorted(path.name for path in commands.glob("[!_]*.py"))
    for path in jobs:
        wanted = f"kafka2011.services.warehouse.commands.{path.stem}"
        assert {name for name in imports_of(path) if "kafka2011" in name} == {
            *(wanted, f"{wanted}.app")
        }


def test_only_declared_places_read_the_environment() -> None:
    # Settings come through runtime.config; what else reads the environment is named here.
    allowed = (
        "kafka2011/cli/",
        "kafka2011/runtime/process_settings.py",  # loads the settings of every process
        "kafka2011/runtime/failpoints.py",
        "kafka2011/runtime/object_store.py",  # what Amazon's clients read there as well
        "kafka2011/runtime/lifeline.py",  # the supervisor's process id
        "kafka2011/protocol/hot.py",  # which twin: decided at import
        "kafka2011/runtime/twins.py",
        "kafka2011/services/warehouse/session.py",  # spark-submit's, and what Spark must find
        "kafka2011/services/embedded",  # passes the environment on to the processes
    )
    for path in sources():
        name = str(path.relative_to(ROOT))
        text = text_of(path)
        if "environ" not in text and "getenv" not in text:
            continue
        reads = any(
            (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"))
            or (isinstance(node, ast.ImportFrom) and any(a.name == "environ" for a in node.names))
            for node in ast.walk(ast.parse(text))
        )
        assert not reads or name.startswith(allowed), f"{name} reads the environment"


def test_what_spark_starts_imports_services_alone() -> None:
    scripts = [*ROOT.glob("pyspark_*.py"), *(ROOT / "spark-jobs").glob("*.py")]
    assert len(scripts) > 3
    for path in scripts:
        ours = {name for name in imports_of(path) if name.startswith("kafka2011")}
        assert ours, path
        assert all(name.startswith("kafka2011.services.") for name in ours), f"{path}: {ours}"


def test_the_unit_tests_mirror_the_tree() -> None:
    unit = ROOT / "tests/unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    assert len(folders) > 20
    roots = (PACKAGE, ROOT)  # of benchmarks the tree's
    assert not [str(one) for one in folders if not any((root / one).is_dir() for root in roots)]
