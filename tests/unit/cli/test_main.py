"""The command's dispatch: help, unknown names, exit statuses."""

import ast
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from kafka2011.cli.commands import COMMANDS
from kafka2011.cli.extras import EXTRA_OF
from kafka2011.cli.main import accept_all_file_names, help_text
from kafka2011.runtime.program import program
from tests import ROOT
from tests.conftest import Done, Run
from tests.support import commands
from tests.unit import text_of


def test_help_lists_every_command_and_is_printed_without_one_too(run: Run) -> None:
    assert all(name in help_text() for name in COMMANDS)
    assert run("--help") == Done(0, help_text() + "\n", "")
    assert run() == Done(2, help_text() + "\n", "")


def test_a_misspelt_command_is_one_line_with_a_hint(run: Run) -> None:
    hint = f"no command 'brokr'; did you mean broker? ({program()} --help lists them)"
    assert run("brokr") == Done(2, "", f"kafka2011: {hint}\n")
    hint = f"no option '--verison'; did you mean --version? ({program()} --help lists them)"
    assert run("--verison") == Done(2, "", f"kafka2011: {hint}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("offsets show --group g", "no command 'show'; there are: get, export, import, reset"),
        ("simple-consumer --server kafka://h:1 --topic t --partition 2-0", "'2-0' is not a whole"),
        ("audit --max-behind soon", "'soon' is not a number"),
        ("audit --max-behind nan", "'--max-behind': it must be greater than or equal to 0 ("),
        ("audit --max-behind -1", "'--max-behind': it must be greater than or equal to 0 ("),
        ("audit --wait -1", "'--wait': it must be greater than or equal to 0 ("),
        (
            "sql --engine duck x",
            "'--engine': 'duck' is not one of 'auto', 'duckdb', 'spark'; did you mean duckdb? (",
        ),
        ("sql --format xml x", "'--format': 'xml' is not one of 'table', 'csv', 'json' ("),
        ("trace --offset -3", "'--offset': it must be greater than or equal to 0 ("),
        ("tail some.log", "kafka2011: give --topic TOPIC"),
        ("embedded demo --replicas x", "'x' is not a whole number"),
        ("console-consumer --zookeeper h:1 --topic t --formatter evnt", "newline, checksum, event"),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_ones(words: str, said: str, run: Run) -> None:
    status, _, complaint = run(*words.split())
    assert status == 2
    assert said in " ".join(complaint.replace("│", "").split())


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(name: str, run: Run) -> None:
    status, out, _ = run(name, "--help")
    assert status == 0
    assert "Usage" in out
    assert not re.search(r"[{<](?!log\.dir)[a-z]+", out), "values are named in capitals"


def test_completion_knows_the_commands_and_the_options_of_one(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("_KAFKA2011_COMPLETE", "complete_bash")
    for line, word, found in (
        ("kafka2011 to", 1, {"topics"}),
        ("kafka2011 topics des", 2, {"describe"}),
        ("kafka2011 console-consumer --from", 2, {"--from-beginning"}),
    ):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(word))
        status, out, _ = run()
        assert (status, set(out.split())) == (0, found), line


# Runs a command, and then says which of these it has imported.
HEAVY = ("typer", "pydantic", "rich", "pyspark", "pyarrow")
WITH_IMPORTS = f"""
import sys
from kafka2011.cli.main import main
try:
    main()
finally:
    print(*(name for name in {HEAVY} if name in sys.modules))
"""


@pytest.mark.parametrize(
    "words",
    [
        ("broker", "--set", "brokerid=zero"),
        ("zookeeper", "--set", "zk.client.port=zero"),
        ("mirror", "--set", "mirror.scatter=maybe"),
        ("audit", "serve", "--set", "audit.window.ms=zero"),
    ],
    ids=lambda words: words[0],
)
def test_bad_setting_of_a_process_is_one_line_and_status_2_and_typer_is_not_loaded(
    words: tuple[str, ...],
) -> None:
    done = commands.run_python("-c", WITH_IMPORTS, *words, status=2)
    assert done.stderr.count("\n") == 1
    assert words[-1].partition("=")[0] in done.stderr
    assert done.stdout == "\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topics", "lst"), "topics: no command 'lst'; did you mean list?"),
        (("topics", "--zookeeper", "x"), "topics: no option --zookeeper; a command comes first: l"),
        (("topics", "list", "--zookeper", "x"), "topics list: no option --zookeper; did you mean"),
        (("audit", "--quux"), "audit: no option --quux ("),
        (("groups", "list", "--check"), "groups list: no option --check; groups describe has it ("),
        (("sql",), "sql: missing argument 'STATEMENT' ("),
        (
            ("sql", "select", "1", "x"),
            "sql: got unexpected extra argument(s) (1 x); a value with spaces needs quotes",
        ),
        (("sql", "select 1", "--dir"), "sql: option '--dir' requires an argument ("),
        (("dump-log", "/nope"), "dump-log: invalid value for 'PATHS': path '/nope' does not"),
        (("broker", "--nope"), "broker: no option --nope ("),
    ],
)
def test_a_slip_is_one_line_and_status_2(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run(*words, status=2)
    assert done.err.startswith(f"kafka2011 {said}")
    assert (done.err.count("\n"), done.out) == (1, "")


def test_a_command_without_words_shows_its_help(run: Run) -> None:
    done = run("topics", status=2)
    assert "describe" in done.out
    assert not done.err


def test_a_command_does_not_load_what_it_does_not_need() -> None:
    done = commands.run_python("-c", WITH_IMPORTS, "trace", status=2)
    assert (done.stderr.count("\n"), done.stdout) == (1, "typer\n")


def test_tables_are_read_without_pandas() -> None:
    code = "import sys, kafka2011.services.trace.table_rows; assert 'pandas' not in sys.modules"
    commands.run_python("-c", code)


def test_processes_do_not_load_what_only_developers_look_at() -> None:
    code = (
        "import sys; from kafka2011.cli.main import import_logging_alone; import_logging_alone(); "
        "import kafka2011.runtime.logs; assert 'rich' not in sys.modules; "
        "import structlog.dev, rich; assert structlog.dev.rich is None"
    )
    commands.run_python("-c", code)


# Runs the commands of its arguments without what `pip install kafka2011` alone does not bring.
WITHOUT_EXTRAS = """
import contextlib, io, json, os, shlex, sys
extras = "pyspark py4j pyarrow deltalake pandas numpy duckdb docker starlette uvicorn"
sys.modules.update(dict.fromkeys(extras.split()))
from kafka2011.cli.main import main
os.chdir(sys.argv[1])
said = []
for words in sys.argv[2:]:
    sys.argv[1:] = shlex.split(words)
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as ended:
            said.append([ended.code, err.getvalue().splitlines()[-1]])
print(json.dumps(said))
"""
SPARK_IS_MISSING = "pip install 'kafka2011[spark]'"
SQL_IS_MISSING = "pyarrow: pip install 'kafka2011[sql]'"


def test_without_extras_each_command_that_needs_one_says_so_in_one_line(tmp_path: Path) -> None:
    needs = {
        "sql 'select 1'": "sql needs duckdb: pip install 'kafka2011[sql]'",
        "load": f"load needs pyarrow: {SPARK_IS_MISSING}",
        "report --table t": f"report needs pyarrow: {SPARK_IS_MISSING}",
        "reports": f"reports needs pyarrow: {SPARK_IS_MISSING}",
        "stream list": f"stream needs pyarrow: {SPARK_IS_MISSING}",
        "pyspark": f"pyspark needs pyarrow: {SPARK_IS_MISSING}",
        "history --dir .": f"history needs pyspark: {SPARK_IS_MISSING}",
        "registry --port 0": "registry needs starlette: pip install 'kafka2011[web]'",
        "dashboard --port 0 --set live.zk.connect=127.0.0.1:1": (
            "dashboard needs starlette: pip install 'kafka2011[web]'"
        ),
        "audit --recount --warehouse w": f"audit needs {SQL_IS_MISSING}",
        "audit serve --set data.dir=../b --set warehouse.dir=w": f"audit needs {SQL_IS_MISSING}",
        "warehouse check s3://bucket/tables": f"warehouse needs {SQL_IS_MISSING}",
        "embedded demo": ("the deployment needs more packages: pip install 'kafka2011[spark,web]'"),
        "embedded up": "the deployment needs more packages: pip install 'kafka2011[spark,web]'",
    }
    here = tmp_path / "here"
    here.mkdir()
    done = commands.run_python("-c", WITHOUT_EXTRAS, here, *needs)
    said = dict(zip(needs, json.loads(done.stdout), strict=True))
    assert said == {words: [1, f"kafka2011: {line}"] for words, line in needs.items()}
    assert list(here.iterdir()) == []


def test_a_statement_that_needs_spark_names_the_extra_that_brings_it(tmp_path: Path) -> None:
    """It named the one that was installed."""
    with_sql = re.sub(r"(pyarrow|deltalake|duckdb) ", "", WITHOUT_EXTRAS)
    words = "sql --warehouse . --engine spark 'select 1'"
    done = commands.run_python("-c", with_sql, tmp_path, words)
    ((status, said),) = json.loads(done.stdout)
    assert status == 1
    assert re.fullmatch(rf"kafka2011: sql needs \w+: {re.escape(SPARK_IS_MISSING)}", said)


def test_the_smallest_extra_that_brings_a_package_is_named() -> None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    brings = {
        name: {re.split(r"[^\w-]", requirement)[0] for requirement in extras[name]}
        for name in ("sql", "spark", "web")
    }
    assert brings["sql"] <= brings["spark"]
    for package in set().union(*brings.values()):
        having = [name for name, packages in brings.items() if package in packages]
        assert EXTRA_OF[package] == min(having, key=lambda name: len(brings[name])), package
    assert set(EXTRA_OF) - set().union(*brings.values()) == {"numpy", "py4j"}  # with others


# Imports what commands with the extra `sql` alone import, without what only `spark` brings.
WITHOUT_SPARK = """
import importlib, sys
sys.modules.update(dict.fromkeys("pyspark py4j pandas numpy docker starlette uvicorn".split()))
for name in sys.argv[1:]:
    importlib.import_module(f"kafka2011.{name}")
"""


def test_the_extra_sql_is_enough_for_the_audit_the_tables_of_a_trace_and_sql() -> None:
    commands.run_python(
        *("-c", WITHOUT_SPARK),
        "services.audit.readers.warehouse_reader",
        "services.audit.recount.warehouse_rows",
        "services.trace.table_rows",
        "services.warehouse.load.column_changes",
        "services.warehouse.shell.duckdb_engine",
        "services.warehouse.store_check",
    )


def test_an_older_python_is_refused_in_one_line() -> None:
    for name in ("__init__", "__main__"):  # read before the line can be printed
        ast.parse(text_of(f"kafka2011/{name}.py"), feature_version=(3, 8))
    code = (
        "import runpy, sys; sys.version_info = (3, 10, 12, 'final', 0); "
        "runpy.run_module('kafka2011', run_name='__main__')"
    )
    done = commands.run_python("-c", code, status=1)
    assert done.stderr == "kafka2011 needs Python 3.11 or newer; this is Python 3.10\n"


def test_settings_of_one_process_are_listed(run: Run) -> None:
    status, out, _ = run("settings", "broker", "--json")
    rows = json.loads(out)
    assert status == 0
    assert {row["process"] for row in rows} == {"broker"}
    [port] = [row for row in rows if row["setting"] == "port"]
    assert (port["variable"], port["default"]) == ("KAFKA2011_PORT", "6667")
    assert run("settings", "brokr").status == 2


@pytest.mark.parametrize(
    ("given", "locale"),
    [
        ({}, "C.UTF-8"),
        ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({"LC_ALL": "", "LANG": "POSIX"}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8"}, None),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, None),
        ({"LC_ALL": "de_DE.ISO-8859-1"}, "de_DE.ISO-8859-1"),
    ],
)
def test_a_jvm_below_finds_files_of_any_name(given: dict[str, str], locale: str | None) -> None:
    environment = dict(given)
    accept_all_file_names(environment)
    assert (environment.get("LC_ALL") or None) == locale


GET_OFFSETS = "get-offsets --server h:1 --topic t --time -1"
PERF = "producer-perf --brokerinfo broker.list=0:h:1 --topic t --messages 1000"
CONSOLE = "console-producer --broker-list 0:h:1 --topic t"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (GET_OFFSETS, "--socket-timeout-ms --time --partition --offsets"),
        (PERF, "--message-size --batch-size --messages --threads --initial-message-id"),
        (CONSOLE, "--timeout --batch-size --max-message-size"),
    ],
)
def test_a_number_that_is_too_large_is_one_line_and_status_2(
    run: Run, command: str, options: str
) -> None:
    for option in options.split():
        done = run(*command.split(), option, "9" * 20)
        assert (done.status, len(done.err.splitlines())) == (2, 1), done
        assert option in done.err
        assert "less than or equal to" in done.err


def test_a_set_that_no_request_can_hold_is_refused_before_it_is_made(run: Run) -> None:
    done = run(*PERF.split(), "--threads", 1, "--message-size", 10**9)
    assert done.status == 2
    assert "200 messages of 1,000,000,000 bytes are no batch" in done.err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("settings broker --json >&-", 0, ""),
        ("settings broker >&-", 0, ""),
        ("settings nosuch 2>&-", 2, ""),
        ("console-producer --broker-list 0:127.0.0.1:1 --topic t <&-", 0, "0 messages sent to t"),
        ("settings broker <&- >&- 2>&-", 0, ""),
        ("settings broker >/dev/full", 1, "cannot write the output: No space left on device"),
        (
            "settings broker --json >/dev/full",
            1,
            "cannot write the output: No space left on device",
        ),
        ("--version >/dev/full", 1, "cannot write the output: No space left on device"),
        ("settings >&$unread", 1, ""),
        ("--help >&$unread", 1, ""),
    ],
)
def test_an_output_that_cannot_be_written_is_no_stack_trace(
    words: str, status: int, said: str
) -> None:
    # `unread` is a pipe whose reader has ended: behind `| true` it may not have yet
    line = f'exec {{unread}}> >(true); wait $!; "$0" -m kafka2011 {words}'
    done = commands.execute(["bash", "-c", line, sys.executable], status=status)
    assert (done.stdout, done.stderr) == ("", f"kafka2011: {said}\n" if said else "")


@pytest.mark.parametrize("words", ["status", "embedded status", "embedded up", "topics list"])
def test_in_a_directory_that_was_deleted_a_command_says_so(tmp_path: Path, words: str) -> None:
    """As in a terminal that stands in what `make demo` has emptied since."""
    (tmp_path / "gone").mkdir()
    line = f'cd {tmp_path}/gone; rmdir {tmp_path}/gone; PYTHONPATH={ROOT} "$0" -m kafka2011 {words}'
    done = commands.execute(["bash", "-c", line, sys.executable], status=1)
    said = "kafka2011: the current directory is not there any more: change to another one\n"
    assert (done.stdout, done.stderr) == ("", said)


def test_a_failure_that_is_not_the_outputs_stays_a_stack_trace() -> None:
    code = (
        "from kafka2011.cli import main\n"
        "def fails(words): open('/nonexistent')\n"
        "main.run = fails; main.main()"
    )
    done = commands.run_python("-c", code, status=1)
    assert "FileNotFoundError" in done.stderr
