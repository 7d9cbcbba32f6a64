"""What the kernel says of another process."""

from pathlib import Path


def is_paused(pid: int | None) -> bool:
    """Whether SIGSTOP holds the process."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
