"""What a process uses: the kernel's figures of a tree of processes; unknown where it has none."""

import os
import sys
import time
from pathlib import Path

import pytest

from kafka2011.runtime.usage import machine_usage, process_usage, usage
from tests.support.commands import Child
from tests.support.waiting import wait_until

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
DISKS = """\
 254  0 vda  1 0 100 0 1 0 200 0 0 0 0
 254  1 vda1 1 0  90 0 1 0 180 0 0 0 0
 259  0 nvme0n1   1 0 10 0 1 0 20 0 0 0 0
 259  1 nvme0n1p1 1 0 10 0 1 0 20 0 0 0 0
   7  0 loop0 1 0 999 0 1 0 999 0 0 0 0
 253  0 dm-0 1 0 999 0 1 0 999 0 0 0 0
"""
NETWORK = """\
Inter-|   Receive                            |  Transmit
 face |bytes packets errs drop fifo frame c m|bytes packets errs
    lo: 1000 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0
  eth0:  500 1 0 0 0 0 0 0  300 1 0 0 0 0 0 0
"""


def add_process(proc: Path, pid: int, *, ticks: int, pages: int, children: str = "") -> None:
    directory = proc / str(pid)
    (directory / "task" / str(pid)).mkdir(parents=True)
    (directory / "task" / str(pid) / "children").write_text(children)
    before = ["S", *["0"] * 10, str(ticks), "0", "0", "0", "0", "0", "3", "0", "0", "0", str(pages)]
    (directory / "stat").write_text(f"{pid} (a (strange) name) {' '.join(before)} 0 0\n")
    (directory / "io").write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\n")
    (directory / "fd").mkdir()
    (directory / "fd" / "0").touch()


def test_a_process_is_counted_with_those_below_it(tmp_path: Path) -> None:
    add_process(tmp_path, 10, ticks=TICKS, pages=5, children="11 12 ")
    add_process(tmp_path, 11, ticks=2 * TICKS, pages=7, children="13 ")  # 13 has ended
    add_process(tmp_path, 12, ticks=0, pages=0)
    found = process_usage(tmp_path, 10)
    assert found == {
        "pid": 10,
        "cpu_s": 3.0,
        "memory_bytes": 12 * PAGE,
        "threads": 9,
        "disk_read_bytes": 3 * 4096,
        "disk_written_bytes": 3 * 8192,
        "open_files": 1,
        "processes": 3,
        "cpu_max": os.cpu_count(),
    }


def test_one_by_itself_can_use_one_core_and_what_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    add_process(tmp_path, 10, ticks=0, pages=1)
    (tmp_path / "10" / "io").unlink()
    found = process_usage(tmp_path, 10)
    assert (found["cpu_max"], found["disk_written_bytes"]) == (1, None)


def test_a_machine_counts_whole_disks_once_and_all_interfaces(tmp_path: Path) -> None:
    (tmp_path / "self" / "net").mkdir(parents=True)
    (tmp_path / "self" / "net" / "dev").write_text(NETWORK)
    (tmp_path / "diskstats").write_text(DISKS)
    (tmp_path / "stat").write_text(f"cpu  {TICKS} 0 {TICKS} 900 70 0 {TICKS} 0 0 0\ncpu0 1\n")
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: 40 kB\n")
    found = machine_usage(tmp_path)
    assert found["machine_disk_read_bytes"] == 110 * 512
    assert found["machine_disk_written_bytes"] == 220 * 512
    assert (found["machine_network_in_bytes"], found["machine_network_out_bytes"]) == (1500, 1300)
    assert found["machine_cpu_s"] == 3.0  # neither idle nor waiting for a disk
    assert found["machine_memory_bytes"] == 60 * 1024


def test_without_proc_there_is_the_processor_time_of_this_process(tmp_path: Path) -> None:
    found = usage(tmp_path)
    assert found["cpu_s"] > 0
    assert found["memory_bytes"] is found["machine_cpu_s"] is found["machine_memory_bytes"] is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_it_measures_what_a_child_really_burns() -> None:
    before = usage()["cpu_s"]
    with Child([sys.executable, "-c", "while True: pass"]):
        began_s = time.process_time()
        wait_until(lambda: usage()["cpu_s"] > before + 0.3, "the child's time to count")
        assert time.process_time() - began_s < usage()["cpu_s"] - before
        assert usage()["processes"] >= 2
