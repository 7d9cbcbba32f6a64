"""The optional dependencies: which extra brings a package that a command does not find.

It is the smallest that does: `spark` brings all of `sql` as well.
"""

from importlib.util import find_spec

EXTRA_OF = {
    **dict.fromkeys(("deltalake", "duckdb", "pyarrow"), "sql"),
    **dict.fromkeys(("numpy", "pandas", "py4j", "pyspark"), "spark"),
    **dict.fromkeys(("docker", "h11", "starlette", "uvicorn"), "web"),
}


def missing(*packages: str) -> str:
    """The command that installs the extras of those packages that are not there; empty if all are.

    For a command that runs several processes, each of which would fail by itself.
    """
    extras = {EXTRA_OF[package] for package in packages if find_spec(package) is None}
    if "spark" in extras:
        extras.discard("sql")
    return f"pip install 'kafka2011[{','.join(sorted(extras))}]'" if extras else ""
