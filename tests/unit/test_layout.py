"""The architecture as a test: who may import whom, and that each package is the one of this tree.

The arrows are those of ARCHITECTURE.md. They are read from the source with `ast`, so that an
import inside a function counts as well.
"""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# package -> the packages of ours that it may import
ARROWS = {
    "protocol": set(),
    "runtime": set(),
    "events": {"runtime"},
    "coordination": {"runtime", "protocol"},
    "broker.log": {"protocol", "runtime"},
    "broker": {"broker.log", "protocol", "coordination", "runtime"},
    "producer": {"protocol", "coordination", "events", "runtime"},
    "consumer": {"protocol", "coordination", "events", "runtime"},
    "pyspark_kafka2011": {"services"},
    "services": {"protocol", "coordination", "events", "runtime", "producer", "consumer"},
    "cli": {
        "protocol",
        "broker",
        "broker.log",
        "coordination",
        "events",
        "runtime",
        "producer",
        "consumer",
        "services",
    },
}

# A library that only one room may touch.
ONLY_IN = {"kazoo": {"coordination"}}


def room_of(module: str) -> str | None:
    """The longest key of ARROWS that holds `module`, or None for somebody else's."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in ARROWS:
            return name
    return None


def imports_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def sources() -> list[Path]:
    found: list[Path] = []
    for top in sorted({name.split(".")[0] for name in ARROWS}):
        module = ROOT / f"{top}.py"
        found += [module] if module.exists() else sorted((ROOT / top).rglob("*.py"))
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    here = room_of(module)
    assert here is not None
    for imported in imports_of(path):
        there = room_of(imported)
        if there is not None and there != here:
            assert there in ARROWS[here], f"{here} must not import {there} ({imported})"
        top = imported.split(".")[0]
        if top in ONLY_IN:
            assert here in ONLY_IN[top], f"only {ONLY_IN[top]} may import {top}"


def test_no_service_imports_another() -> None:
    # Services meet in ZooKeeper, in topics and in tables. The audit follows the warehouse's
    # commits, whose form the warehouse owns; registration is shared by all.
    allowed = {("containers", "embedded"), ("audit", "warehouse")}
    packages = {path.name for path in (ROOT / "services").iterdir() if path.is_dir()}
    for path in (ROOT / "services").rglob("*.py"):
        here = path.relative_to(ROOT / "services").parts[0]
        for imported in imports_of(path):
            parts = imported.split(".")
            if parts[0] == "services" and len(parts) > 1 and parts[1] in packages - {here}:
                assert (here, parts[1]) in allowed, f"{path} imports {imported}"


@pytest.mark.parametrize("name", sorted({name.split(".")[0] for name in ARROWS}))
def test_package_is_loaded_from_this_tree(name: str) -> None:
    if name == "pyspark_kafka2011":
        pytest.importorskip("pyspark")
    module = importlib.import_module(name)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().is_relative_to(ROOT)


def test_only_declared_places_read_the_environment() -> None:
    # Settings come through runtime.config; what else looks at the environment is named here.
    allowed = (
        "cli/",  # the edge: loads settings, prepares what Spark must find
        "runtime/failpoints.py",
        "protocol/hot.py",  # which twin: decided at import
        "runtime/twins.py",
        "services/warehouse/session.py",  # whether spark-submit started it
        "services/embedded",  # passes the environment on to the processes
    )
    for path in sources():
        name = str(path.relative_to(ROOT))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        reads = any(
            (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"))
            or (isinstance(node, ast.ImportFrom) and any(a.name == "environ" for a in node.names))
            for node in ast.walk(tree)
        )
        assert not reads or name.startswith(allowed), f"{name} reads the environment"
