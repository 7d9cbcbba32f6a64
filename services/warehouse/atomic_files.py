"""Text files that are replaced whole: a reader sees the old one or the new one."""

from pathlib import Path


def replace_text(final: Path, text: str) -> None:
    """Write `final` beside its place and rename it; its directory is made. Raises OSError."""
    final.parent.mkdir(parents=True, exist_ok=True)
    unfinished = final.with_name(f".{final.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(final)
