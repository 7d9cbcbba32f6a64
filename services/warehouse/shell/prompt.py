"""A Python prompt with Spark: `spark`, the warehouse's tables as views, topics as DataFrames.

spark.sql("select count(*) from access_log").show()
topic("page-view", decode="true").groupBy("path").count().show()
"""

import ast
import code
import sys
import traceback
from typing import Any

from kafka2011.runtime.storage_paths import StoragePath
from kafka2011.services.warehouse.errors import WarehouseError
from kafka2011.services.warehouse.table_paths import tables_in
from kafka2011.services.warehouse.table_views import create_view

STDIN = "<stdin>"  # the script's name in its errors
BANNER = """Spark {version}: `spark`, and `topic(NAME, ...)` for a topic's messages ({zookeeper}).
Views of {warehouse}: {views}"""


def register_tables(session: Any, warehouse_dir: StoragePath) -> list[str]:
    """Make a view of the newest version of each table; returns the views' names. One that cannot be
    opened is named on standard error and left out."""
    views = []
    for name, path in tables_in(warehouse_dir.resolve()).items():
        try:
            if create_view(session, name, path):
                views.append(name)
        except WarehouseError as error:
            sys.stderr.write(f"kafka2011 pyspark: {error}\n")
    return views


def names_for(session: Any, source: dict[str, str]) -> dict[str, Any]:
    """The names defined at the prompt."""

    def topic(name: str, **options: str) -> Any:
        """A topic as a DataFrame; options are the data source's, with `_` for `.`"""
        given = {**source, "topic": name}
        given.update({option.replace("_", "."): value for option, value in options.items()})
        return session.read.format("kafka2011").options(**given).load()

    from pyspark.sql import functions

    return {"spark": session, "sc": session.sparkContext, "F": functions, "topic": topic}


def run_shell(session: Any, warehouse_dir: StoragePath, source: dict[str, str]) -> None:
    """Run the statements of standard input: at a terminal one by one until it ends, else as a
    script. `source` are options of the data source, `zk.connect` among them.

    Raises SystemExit with the status of `exit(status)`, and with 1 after an error in a script.
    """
    views = register_tables(session, warehouse_dir)
    names = names_for(session, source)
    if not sys.stdin.isatty():
        _run_script(sys.stdin.read(), names)
        return
    try:
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    except ImportError:
        pass  # a Python built without it: no editing of lines
    banner = BANNER.format(
        version=session.version,
        zookeeper=f"brokers of {source['zk.connect']}",
        warehouse=warehouse_dir,
        views=", ".join(views) or "none; `make demo` leaves some",
    )
    code.interact(banner, local=names, exitmsg="")


def _run_script(script: str, names: dict[str, Any]) -> None:
    """Run the statements up to the first error, and show what each expression is, as at the prompt.
    If one is not valid Python, none is run."""
    try:
        statements = [
            compile(ast.Interactive([statement]), STDIN, "single")
            for statement in ast.parse(script, STDIN).body
        ]
    except (SyntaxError, ValueError) as error:
        traceback.print_exception(error.with_traceback(None))
        raise SystemExit(1) from None
    try:
        for statement in statements:
            exec(statement, names)  # noqa: S102 - the user's own
    except Exception as error:
        frames = error.__traceback__
        traceback.print_exception(error.with_traceback(frames and frames.tb_next))
        raise SystemExit(1) from None
