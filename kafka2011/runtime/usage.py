"""What this process and its machine use, as the kernel says it: the page /usage of every process.

Totals since a start, or present values: the difference of two readings is what was used between
them. A figure that the system does not give is None. /proc is Linux's; elsewhere there is the
processor time of the process, and the space of the disk. A process's figures contain those of the
processes below it (a JVM).
"""

import contextlib
import os
import resource
import socket
from pathlib import Path
from typing import Any

PROC = Path("/proc")
SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own sectors are
# Block devices that are parts or views of others, or memory.
_NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr")
_DESCENDANTS_MAX = 200


def usage(proc: Path = PROC, pid: int | None = None) -> dict[str, Any]:
    """The figures of this process (`pid`: of another one), and of the machine with `machine_`."""
    return {**process_usage(proc, os.getpid() if pid is None else pid), **machine_usage(proc)}


def process_usage(proc: Path, pid: int) -> dict[str, Any]:
    """The figures of a process and those below it. `cpu_s` contains those that have ended and were
    waited for; `cpu_max` is how many cores they can keep busy: a Python process by itself, one."""
    found: dict[str, Any] = {
        "pid": pid,
        "cpu_s": None,
        "memory_bytes": None,
        "threads": None,
        "disk_read_bytes": None,
        "disk_written_bytes": None,
        "open_files": None,
        "processes": None,
        "cpu_max": None,
    }
    parts = [part for each in with_descendants(proc, pid) if (part := _one(proc, each))]
    if not parts:
        if pid == os.getpid():
            own, below = (
                resource.getrusage(which)
                for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            )
            found["cpu_s"] = own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime
        return found
    for name in ("cpu_s", "memory_bytes", "threads", "disk_read_bytes", "disk_written_bytes"):
        values = [part[name] for part in parts]
        found[name] = None if None in values else sum(values)
    found["open_files"] = parts[0]["open_files"]
    found["processes"] = len(parts)
    found["cpu_max"] = 1 if len(parts) == 1 else os.cpu_count()
    return found


def _one(proc: Path, pid: int) -> dict[str, Any] | None:
    """One process by itself; None when it has ended."""
    directory = proc / str(pid)
    text = _text(directory / "stat")
    fields = text.rpartition(")")[2].split()
    if len(fields) < 22:
        return None
    ticks = sum(map(int, fields[11:15]))  # utime, stime, and of children that were waited for
    io = dict(line.split(": ") for line in _text(directory / "io").splitlines() if ": " in line)
    open_files = None
    with contextlib.suppress(OSError):
        open_files = len(os.listdir(directory / "fd"))
    return {
        "cpu_s": ticks / os.sysconf("SC_CLK_TCK"),
        "threads": int(fields[17]),
        "memory_bytes": int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        "disk_read_bytes": int(io["read_bytes"]) if "read_bytes" in io else None,
        "disk_written_bytes": int(io["write_bytes"]) if "write_bytes" in io else None,
        "open_files": open_files,
    }


def with_descendants(proc: Path, pid: int) -> list[int]:
    """A process and those below it, at most _DESCENDANTS_MAX; alone where /proc does not tell."""
    found = [pid]
    for each in found:  # grows while it is walked
        for children in (proc / str(each) / "task").glob("*/children"):
            found += [int(child) for child in _text(children).split()]
        if len(found) > _DESCENDANTS_MAX:
            break
    return found[:_DESCENDANTS_MAX]


def machine_usage(proc: Path) -> dict[str, Any]:
    """The machine's figures. `machine` is the same for all processes of one start of the kernel, in
    containers too; `machine_network` for those that share its interfaces. The disk is that of the
    current directory."""
    found: dict[str, Any] = {
        "host": socket.gethostname(),
        "machine": _text(proc / "sys/kernel/random/boot_id").strip() or None,
        "machine_network": None,
        "machine_cores": os.cpu_count(),
        "machine_cpu_s": None,
        "machine_memory_bytes": None,
        "machine_memory_max_bytes": None,
        "machine_disk_read_bytes": None,
        "machine_disk_written_bytes": None,
        "machine_disk_free_bytes": None,
        "machine_disk_max_bytes": None,
        "machine_network_in_bytes": None,
        "machine_network_out_bytes": None,
    }
    with contextlib.suppress(OSError):
        found["machine_network"] = os.readlink(proc / "self/ns/net")
    with contextlib.suppress(OSError):
        disk = os.statvfs(".")
        found["machine_disk_free_bytes"] = disk.f_bavail * disk.f_frsize
        # Without what is reserved for root or otherwise: what is not free is then what is used.
        has_bytes = (disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize
        found["machine_disk_max_bytes"] = has_bytes
    cpu = _text(proc / "stat").partition("\n")[0].split()
    if len(cpu) > 8 and cpu[0] == "cpu":
        user, nice, system, _idle, _waiting, *rest = map(int, cpu[1:9])
        found["machine_cpu_s"] = (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
    memory = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (
            line.partition(":") for line in _text(proc / "meminfo").splitlines()[:8]
        )
    }
    if {"MemTotal", "MemAvailable"} <= memory.keys():
        found["machine_memory_max_bytes"] = memory["MemTotal"]
        found["machine_memory_bytes"] = memory["MemTotal"] - memory["MemAvailable"]
    _add_disks(found, _text(proc / "diskstats"))
    _add_network(found, _text(proc / "self/net/dev"))
    return found


def _add_disks(found: dict[str, Any], text: str) -> None:
    lines = [line.split() for line in text.splitlines()]
    names = [line[2] for line in lines if len(line) > 9]
    whole = [
        line
        for line in lines
        if len(line) > 9
        and not line[2].startswith(_NO_DISKS)
        and not any(line[2] != name and _is_part(line[2], name) for name in names)
    ]
    if whole:
        found["machine_disk_read_bytes"] = sum(int(line[5]) for line in whole) * SECTOR_BYTES
        found["machine_disk_written_bytes"] = sum(int(line[9]) for line in whole) * SECTOR_BYTES


def _is_part(name: str, disk: str) -> bool:
    """Whether it is one of that disk: sda1 of sda, nvme0n1p2 of nvme0n1."""
    rest = name.removeprefix(disk)
    return rest != name and rest.removeprefix("p").isdecimal()


def _add_network(found: dict[str, Any], text: str) -> None:
    """Add the bytes of all interfaces, loopback too: processes of one machine talk over it."""
    lines = [line.partition(":")[2].split() for line in text.splitlines() if ":" in line]
    if lines:
        found["machine_network_in_bytes"] = sum(int(line[0]) for line in lines)
        found["machine_network_out_bytes"] = sum(int(line[8]) for line in lines)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
