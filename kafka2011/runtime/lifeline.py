"""Ends a process together with the one that started it, however that one ends (Linux).

The kernel can send SIGKILL to a process when the thread that started it ends (PR_SET_PDEATHSIG). A
process of ours asks for that itself, in the first lines of its `main`, since Python code between
fork and exec (`preexec_fn`) can hang a program that has threads. If the parent ends before that
request, the parent's id shows it.
"""

import ctypes
import os
import signal
import sys

# Holds the id of the process that started this one. No setting, and not passed on.
PARENT_VARIABLE = "KAFKA2011_PARENT"
PR_SET_PDEATHSIG = 1

# Looked up here: nothing may be loaded between fork and exec. Other systems have no such call.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def hold() -> None:
    """`die_with_parent` where PARENT_VARIABLE is set; ends at once if that process is gone."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if parent:
        die_with_parent()
        if os.getppid() != int(parent):
            os._exit(1)
