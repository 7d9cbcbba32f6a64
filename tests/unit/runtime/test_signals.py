import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.commands import Child
from tests.support.waiting import DEADLINE_S

WAITS = """
import signal, sys, time
from kafka2011.runtime import signals
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
event = signals.stop_event({forced})
print("ready", flush=True)
event.wait()
print("asked", flush=True)
{stop}
"""
SLOW_STOP = "time.sleep(60)"
QUICK_STOP = "time.sleep(0.2)"


@contextmanager
def process(script: str) -> Iterator[Child]:
    """One that runs the script, once it is ready."""
    command = [sys.executable, "-c", script]
    with Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running


POLLS = """
from kafka2011.runtime import signals
event = signals.stop_event()
print("ready", flush=True)
while not event.wait(0):
    pass
"""


def test_a_signal_may_come_while_the_event_is_looked_at() -> None:
    """A handler that set the event itself met the lock that the interrupted `wait` held."""
    for _ in range(5):
        with process(POLLS) as running:
            running.send_signal(signal.SIGTERM)
            assert running.wait(DEADLINE_S) == 0


TAKES_THE_SIGNAL_ELSEWHERE = """
import signal, threading
from kafka2011.runtime import signals
event = signals.stop_event()
def take():
    input()
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    threading.Event().wait()
threading.Thread(target=take, daemon=True).start()
print("ready", flush=True)
event.wait()
"""


def test_a_signal_may_arrive_in_another_thread_than_the_one_that_waits() -> None:
    """As the kernel does with a process that was stopped when the signal came."""
    with process(TAKES_THE_SIGNAL_ELSEWHERE) as running:
        print(file=running.stdin, flush=True)
        assert running.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_signals_that_come_together_ask_once(second: signal.Signals) -> None:
    with process(WAITS.format(forced="", stop=QUICK_STOP)) as running:
        running.send_signal(signal.SIGSTOP)  # else the second may come late on a busy machine
        running.send_signal(signal.SIGTERM)
        running.send_signal(second)
        running.send_signal(signal.SIGCONT)
        assert running.wait(DEADLINE_S) == 0


@pytest.mark.parametrize(
    ("forced", "said"), [("", ""), ("lambda: print('left', flush=True)", "left\n"), ("1", "")]
)
def test_a_later_signal_ends_a_stop_that_takes_too_long(forced: str, said: str) -> None:
    with process(WAITS.format(forced=forced, stop=SLOW_STOP)) as running:
        running.send_signal(signal.SIGTERM)
        assert running.stdout is not None
        assert running.stdout.readline() == "asked\n"
        for _ in range(100):  # one of them comes late enough, however slow the machine is
            try:
                assert running.wait(0.1) == 130
                assert running.stdout.read() == said
                return
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGINT)
    raise AssertionError("it went on stopping")


def test_a_terminal_that_is_closed_asks_for_a_clean_stop_and_hurries_none() -> None:
    with process(WAITS.format(forced="", stop="input()")) as running:
        for _ in range(3):
            running.send_signal(signal.SIGHUP)
        assert running.stdout is not None
        assert running.stdout.readline() == "asked\n"
        running.send_signal(signal.SIGHUP)
        print(file=running.stdin, flush=True)
        assert running.wait(DEADLINE_S) == 0


IGNORES = """
import signal
from kafka2011.runtime import signals
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signals.stop_event()
print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)
"""


def test_a_process_that_was_started_to_ignore_the_terminal_does() -> None:
    done = subprocess.run([sys.executable, "-c", IGNORES], capture_output=True, check=True)
    assert done.stdout == b"True\n"
