"""A process that ends with the one that started it."""

import os
import signal
import subprocess
import sys

import pytest

from kafka2011.runtime.process_state import is_alive
from tests import ROOT
from tests.support.commands import Child
from tests.support.waiting import DEADLINE_S, wait_until

CHILD = (
    "import os, threading; from kafka2011.runtime import lifeline; lifeline.hold(); "
    "print(os.getpid(), os.environ.get(lifeline.PARENT_VARIABLE), flush=True); "
    "threading.Event().wait()"
)
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_parent_however_that_ends(signal_number: int) -> None:
    # A shell hands the variable on with its own id, as the supervisor does with its own.
    shell = ["sh", "-c", 'KAFKA2011_PARENT=$$ exec "$@"', "sh", sys.executable, "-c", PARENT]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Child(shell, env=variables, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, variable = parent.stdout.readline().split()
        assert variable == "None"
        parent.send_signal(signal_number)
        assert parent.wait(DEADLINE_S) == -signal_number
    wait_until(lambda: not is_alive(int(pid)), "the child to end")


def test_it_ends_at_once_where_the_parent_is_gone_already() -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "KAFKA2011_PARENT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=variables, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
