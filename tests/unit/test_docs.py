"""The documentation against itself and the code: links, code blocks, the public surface, quoted
messages."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest

from kafka2011.runtime.config import load
from kafka2011.runtime.process_settings import config_classes
from tests import ROOT
from tests.unit import files_below, text_of

PAGES = sorted([*ROOT.glob("*.md"), ROOT / "deploy/README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# Tables whose first column quotes the code, and where the code has its texts.
QUOTED = re.compile(r"^\| ((?:`[^`]+`(?:, )?)+) \|", re.M)


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_link_leads_somewhere() -> None:
    every = ((one, link) for one in PAGES for link in LINK.findall(without_code(text_of(one))))
    for page, link in every:
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page}: {link}: no such file"
        assert not anchor or anchor in anchors(target), f"{page}: {link}: no such heading"


def test_every_page_is_in_its_index() -> None:
    for index in (ROOT / "docs").rglob("README.md"):
        listed = {
            (index.parent / link.partition("#")[0]).resolve()
            for link in LINK.findall(text_of(index))
        }
        pages = {path.resolve() for path in index.parent.glob("*.md")} - {index.resolve()}
        assert pages <= listed, f"{relative(index)} does not list {pages - listed}"


# Blocks that can be run, and the test that runs those of a page.
RUN_BY = {
    "README.md": "tests/integration/test_readme.py",
    "docs/backup.md": "tests/integration/test_backup_page.py",
    "docs/clients.md": "tests/integration/test_clients_page.py",
    "docs/consumer.md": "tests/integration/test_clients_page.py",
    "docs/course.md": "tests/integration/test_readme.py",
    "docs/orders.md": "tests/integration/test_demo.py",
    "docs/operations.md": "tests/integration/test_operator_commands.py",
    "docs/pip.md": "tests/packaging/test_wheel.py",
    "docs/tail.md": "tests/integration/test_demo.py",
    "docs/streams.md": "tests/integration/test_spark_toolkit.py",
    "docs/upgrade.md": "tests/integration/test_demo.py",
    "docs/warehouse.md": "tests/integration/test_spark_object_store.py",
    **dict.fromkeys(
        map(relative, (ROOT / "docs/runbook").glob("[!R]*.md")), "tests/integration/test_demo.py"
    ),
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
PLACEHOLDER = re.compile(r"\.\.\.\)|HOST:PORT")


def blocks(page: Path, *languages: str) -> list[str]:
    return [code for language, code in BLOCK.findall(text_of(page)) if language in languages]


def test_what_can_run_is_run_by_a_test() -> None:
    for page in PAGES:
        for script in blocks(page, "sh"):
            subprocess.run(["sh", "-n"], input=script.encode(), check=True)
        for program in blocks(page, "python"):
            compile(program, relative(page), "exec")
        runs = [b for b in blocks(page, "sh", "python") if not PLACEHOLDER.search(b)]
        assert bool(runs) == (relative(page) in RUN_BY), page
        name = "docs/runbook" if page.parent.name == "runbook" else page.name
        assert not runs or name in text_of(RUN_BY[relative(page)]), page


def test_properties_files_are_read_without_a_warning(tmp_path: Path) -> None:
    """The first line of a block names its file, and that the process."""
    classes = {found.__name__.removesuffix("Config").lower(): found for found in config_classes()}
    classes |= {"load": classes["warehouse"], "registry": classes["schemaregistry"]}
    for block in (block for page in PAGES for block in blocks(page, "properties")):
        named = re.match(r"# ([\w-]+)\.properties", block)
        assert named, block
        file = tmp_path / "file.properties"
        file.write_text(block)
        assert load(classes[named[1]], file=file, environment={})[1] == []


def test_make_targets_that_are_named_exist() -> None:
    text = text_of("Makefile") + text_of("deploy/docker/containers.mk")
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", text, re.M))
    code = re.compile(r"(?:^ {4}|^|`)(?:[A-Z_]+=\S+ )*make ([a-z][a-z-]*)", re.M)
    named = {name for page in PAGES for name in code.findall(text_of(page))}
    assert len(named) > 20
    assert named <= targets, named - targets


def public_names() -> dict[str, list[str]]:
    text = text_of("docs/public.md")
    rows = re.findall(r"^\| `(kafka2011[\w.]*)` \| (`.+`) \|$", text, re.M)
    return {module: re.findall(r"`([\w]+)`", names) for module, names in rows}


@pytest.mark.parametrize(
    "module", ["kafka2011", *(f"kafka2011.{part}" for part in ("producer", "consumer", "streams"))]
)
def test_the_public_page_lists_what_a_package_exports(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == sorted(public_names()[module])


@pytest.mark.parametrize("module", public_names())
def test_every_public_name_is_there(module: str) -> None:
    loaded = importlib.import_module(module)
    assert not [name for name in public_names()[module] if not hasattr(loaded, name)]


def test_the_programs_of_the_pages_import_what_is_promised() -> None:
    promised = {f"{module}.{name}" for module, names in public_names().items() for name in names}
    line = re.compile(r"^ *from (kafka2011[\w.]*) import (\([^)]*\)|.+)$", re.M)
    pages = [text_of(page) for page in PAGES if "decisions" not in page.parts]
    imported = {
        f"{module}.{name}"
        for page in pages
        for module, names in line.findall(page)
        for name in re.findall(r"\w+", names)
    }
    assert len(imported) > 10
    assert imported - promised - set(public_names()) == set()


def code_text() -> str:
    return "\n".join(text_of(path) for path in files_below(("kafka2011", "deploy"), ".py", ".sh"))


def test_every_quoted_message_is_in_the_source() -> None:
    code = code_text()
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # joins the texts that stand on several lines
    rows = QUOTED.findall(text_of("docs/troubleshooting.md"))
    quoted = [message for row in rows for message in re.findall(r"`([^`]+)`", row)]
    assert len(quoted) > 60
    parts = {message: re.split(r" ?… ?", message) for message in quoted}
    assert not [m for m in quoted if any(part not in code for part in parts[m])]


def log_events() -> set[str]:
    """The first words of what the code logs."""
    found = re.findall(r"\blog\.[a-z]+\(\s*\"([a-z_]+)\"", code_text())
    assert len(found) > 200
    return set(found)


def test_what_does_not_answer_is_logged_in_one_form() -> None:
    """It was `_away` in one process and `_not_answering` in the next."""
    others = re.compile(r"_(away|unreachable|unavailable|silent)\b|_(away|unreachable)_")
    assert not [event for event in log_events() if others.search(event)]


def test_what_a_page_looks_for_in_a_log_is_logged() -> None:
    code = code_text()
    patterns = [
        pattern
        for path in files_below(["docs"], ".md")
        for pattern in re.findall(r"grep [^'\n|]*'([^']+)'", text_of(path))
    ]
    words = {word for pattern in patterns for word in re.findall(r"[a-z]+(?:_[a-z]+)+", pattern)}
    assert len(words) > 5
    assert not [word for word in words if word not in code]


def test_make_help_names_every_target() -> None:
    makefile = text_of("Makefile")
    text = makefile + text_of("deploy/docker/containers.mk")
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", text, re.M))
    help_text = makefile.partition("define HELP")[2].partition("endef")[0]
    assert targets - {"help"} <= set(re.findall(r"[a-z][a-z-]*", help_text))
    assert max(map(len, help_text.splitlines())) <= 80


def test_each_target_with_a_directory_keeps_to_it() -> None:
    for target, options in (("reports", "DIR=other"), ("demo", "DIR=other"), ("live", "DIR=other")):
        told = ["make", "--no-print-directory", "-n", target, options]
        said = subprocess.run(told, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        *_, command = [line for line in said.splitlines() if "-m kafka2011" in line]
        assert re.search(r"\bother\b", command), command
        assert "var/" not in command, command


def test_every_path_of_the_architecture_exists() -> None:
    text = text_of("ARCHITECTURE.md")
    named = set(re.findall(r"`([\w-]+(?:/[\w.-]*)+|[\w-]+\.(?:py|yml))`", text))
    assert len(named) > 90
    assert not [path for path in sorted(named) if not (ROOT / path).exists()]


def test_every_room_is_in_the_architecture() -> None:
    text = text_of("ARCHITECTURE.md").partition("## The rooms")[2]
    packages = {
        str(path.parent.relative_to(ROOT))
        for room in ("kafka2011", "broker", "consumer", "producer", "services")
        for path in (ROOT / room).rglob("__init__.py")
    }
    # A folder that only holds rooms is in the table by its rooms.
    assert not [name for name in packages - {"kafka2011", "services"} if f"`{name}/`" not in text]


def test_every_file_of_deploy_is_in_its_page() -> None:
    page = text_of("deploy/README.md")
    folders = {path for path in (ROOT / "deploy").iterdir() if path.is_dir()}
    named = {
        path.name for name in ("docker", "tools") for path in (ROOT / "deploy" / name).iterdir()
    }
    # The images are named by what they are of.
    named -= {"base.Dockerfile", "haproxy.Dockerfile", "prometheus.Dockerfile"}
    named -= {"haproxy.cfg", "prometheus.yml", "__pycache__"}
    assert not [name for name in named if name not in page]
    assert not [path.name for path in folders if f"`{path.name}/`" not in page]
    assert not [
        path.name for path in folders if f"`deploy/{path.name}/`" not in text_of("ARCHITECTURE.md")
    ]


def test_every_test_that_a_page_names_exists() -> None:
    there = {path.name for path in files_below(["tests"], ".py")}
    pages = ("README.md", "ARCHITECTURE.md", *map(relative, files_below(["docs"], ".md")))
    named = {name for page in pages for name in re.findall(r"\btest_\w+\.py", text_of(page))}
    assert len(named) > 100
    assert not named - there


def test_the_reading_list_has_the_stated_number_of_lines() -> None:
    text = text_of("ARCHITECTURE.md")
    rows = re.findall(r"^\| [^|`]+ \| (`[^|]+`) \| (\d+) \|$", text, re.M)
    assert len(rows) > 5
    total = 0
    for files, stated in rows:
        paths = [ROOT / name for name in re.findall(r"`([^`]+)`", files)]
        lines = sum(len(text_of(path).splitlines()) for path in paths)
        assert lines == pytest.approx(int(stated), rel=0.1, abs=20), files
        total += lines
    readme = text_of("README.md")
    for found in (
        re.search(r"about ([\d,]+) lines in all", text),
        re.search(r"([\d,]+) lines that can be read in a day", readme),
        re.search(r"\[about ([\d,]+) lines\]", text_of("docs/faq.md")),
    ):
        assert found, "the page states no number of lines"
        assert total == pytest.approx(int(found[1].replace(",", "")), rel=0.05)


CITATION = re.compile(
    r"contracts (section |\d)|\b[Rr]eference(['’]s\b|\W*(section )?\(?\d)"
    r"|captures?\W{1,2}(section|\()|pitfall[ ]\d"
)


def test_no_file_cites_a_document_that_is_not_in_the_repository() -> None:
    rooms = ("kafka2011", "tests", "benchmarks", "spark-jobs", "deploy", "docs")
    files = files_below(rooms, ".py", ".pyx", ".pxd", ".h", ".sh", ".md", ".js")
    assert len(files) > 500
    assert not [relative(path) for path in files if CITATION.search(text_of(path))]


def test_the_help_of_make_says_that_clean_removes_the_data() -> None:
    """`make demo` refuses to delete what `make live` collected, and this only named what was
    built."""
    makefile = text_of("Makefile")
    help_text, recipe = makefile.partition("endef")[0], makefile.partition("\nclean:\n")[2]
    assert "rm -rf var " in recipe.partition("\n\n")[0]
    assert "remove what was built, and var/ with all data" in help_text
