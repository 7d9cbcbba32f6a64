"""Text files that are replaced whole: a reader sees the old text or the new one."""

from pathlib import Path


def replace_text(final: Path, text: str) -> None:
    """Write a file beside `final` and rename it; creates the directory. Raises OSError."""
    final.parent.mkdir(parents=True, exist_ok=True)
    unfinished = final.with_name(f".{final.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(final)
