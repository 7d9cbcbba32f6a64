"""Facts about the machine and the build, printed and kept with every result."""

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any


def facts(data_dir: Path) -> dict[str, Any]:
    """What the figures depend on beside our code. `load_average` is the last minute's, before."""
    model = platform.processor() or "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "file_system": file_system_of(data_dir),
        "load_average": round(os.getloadavg()[0], 2),
    }


def file_system_of(path: Path) -> str:
    """The type of the file system that holds `path`, from /proc/mounts."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, file_system, *_ = line.split()
        mount = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), mount)  # a space
        if path.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, kind = mount, file_system
    return kind
