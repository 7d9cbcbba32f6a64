"""An engine of shell scripts: what the code and the scripts under test find as `docker`."""

from pathlib import Path

import pytest

SETTINGS = (
    "COMPOSE_PROFILES",
    "COMPOSE_PROJECT_NAME",
    "DASHBOARD_PORT",
    "FRONTEND_INPUT",
    "FRONTEND_SOURCE",
    "MAKEFLAGS",
    "ZK_LIVE",
)


@pytest.fixture(autouse=True)
def without_settings_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


def executable(path: Path, script: str) -> None:
    """Write a shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
