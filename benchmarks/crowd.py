"""Several client processes that do the same thing for a while, started together.

Forked, so the work may be any function; each gets the number of connections to hold. With two cores
more than a few processes only take turns, so connections are dealt to at most `PROCESSES_MAX`.
"""

import multiprocessing
import time
from collections.abc import Callable

PROCESSES_MAX = 4

# (number of connections, wait for the start) -> how much was done; the second is called when ready.
Work = Callable[[int, Callable[[], None]], int]


def together(connection_count: int, work: Work) -> tuple[int, float]:
    """Run `work` over that many connections in all; returns what was done and the seconds from
    the first start to the last end."""
    context = multiprocessing.get_context("fork")
    process_count = min(connection_count, PROCESSES_MAX)
    start = context.Barrier(process_count)
    answers = context.SimpleQueue()

    def member(connections: int) -> None:
        began = [0.0]

        def ready() -> None:
            start.wait()
            began[0] = time.perf_counter()  # one clock for all processes

        done = work(connections, ready)
        answers.put((done, began[0], time.perf_counter()))

    if process_count == 1:
        member(connection_count)
        members = []
    else:
        shares = [
            connection_count // process_count + (number < connection_count % process_count)
            for number in range(process_count)
        ]
        members = [context.Process(target=member, args=(share,)) for share in shares]
        for one in members:
            one.start()
    results = [answers.get() for _ in range(process_count)]
    for one in members:
        one.join()
    done = sum(result[0] for result in results)
    return done, max(result[2] for result in results) - min(result[1] for result in results)
