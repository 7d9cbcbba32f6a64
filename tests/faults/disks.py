"""Disks that fail, are slow or hang: a preloaded library that a process's flushes go through."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
/* FAIL_FILE: while it exists, fdatasync removes it and fails: once. */
static int fails(void) {
    const char *file = getenv("FAIL_FILE");
    return file && unlink(file) == 0;
}
/* SLOW_FILE: while it exists, each flush waits as many milliseconds as it says, or, where it is
   empty, until it is gone. */
static void wait(void) {
    const char *file = getenv("SLOW_FILE");
    int fd;
    while (file && (fd = open(file, O_RDONLY)) >= 0) {
        char text[16] = "";
        long ms = read(fd, text, 15) > 0 ? atol(text) : 0;
        close(fd);
        usleep(ms ? ms * 1000 : 20000);
        if (ms) return;
    }
}
int fdatasync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    if (fails()) { errno = EIO; return -1; }
    wait();
    return real(fd);
}
int fsync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    wait();
    return real(fd);
}
"""


def build(directory: Path) -> Path:
    """The library, for LD_PRELOAD; skips the test where there is no C compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler for the library that fails")
    source, library = directory / "disk.c", directory / "disk.so"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
