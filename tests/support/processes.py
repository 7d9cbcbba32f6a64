"""Processes in a process registry that never started."""

import json

from kafka2011.coordination import paths
from kafka2011.coordination.registry import Registry


def expect_process(registry: Registry, datacenter: str, name: str, kind: str) -> None:
    """Add a process to the expected ones, as it does itself at its start."""
    registry.put(paths.process_path(datacenter, name), json.dumps({"kind": kind}).encode())
