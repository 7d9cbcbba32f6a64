"""The optional dependencies: which extra brings a package that a command does not find."""

from importlib.util import find_spec

EXTRA_OF = {
    **dict.fromkeys(("deltalake", "numpy", "pandas", "py4j", "pyarrow", "pyspark"), "spark"),
    **dict.fromkeys(("docker", "starlette", "uvicorn"), "web"),
    "duckdb": "sql",
}


def missing(*packages: str) -> str:
    """The command that installs the extras of those packages that are not there; empty if all are.

    For a command whose parts are processes of their own: each would end by itself.
    """
    extras = sorted({EXTRA_OF[package] for package in packages if find_spec(package) is None})
    return f"pip install 'kafka2011[{','.join(extras)}]'" if extras else ""
