"""Bytes recorded from the original programs, and worked examples computed by hand.

`kafka-0.7.json` maps a name to what it is and to its bytes: V are worked vectors, S message sets, P
produce, F fetch and offsets requests, R responses, all of 0.7.2. `wrapper` says what the original
unpacked a compressed set to.
"""

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("kafka-0.7.json")
_VECTORS: dict[str, dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))


def vector(name: str) -> bytes:
    return bytes.fromhex(_VECTORS[name]["hex"])


def names(*letters: str) -> list[str]:
    """The vectors whose names start with one of `letters`."""
    return [name for name in _VECTORS if name[0] in letters]


def wrapper(name: str) -> dict[str, Any]:
    """length, codec, payload_bytes, crc, unpacked_bytes, entry_count, unpacked_sha256."""
    found: dict[str, Any] = _VECTORS[name]["wrapper"]
    return found


def wrapped() -> list[str]:
    return [name for name, about in _VECTORS.items() if "wrapper" in about]
