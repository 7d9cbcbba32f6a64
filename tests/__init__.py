"""The tests. `ROOT` is the directory above them: a clone, or a copy beside an unpacked wheel.

Docstrings name faults (S12, N7) and promises (G1): docs/testing.md lists them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
