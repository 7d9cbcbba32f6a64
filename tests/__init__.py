"""The tests. `ROOT` is the directory above them: a clone, or a copy beside an unpacked wheel."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
