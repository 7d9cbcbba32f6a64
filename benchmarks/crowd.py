"""Several client processes that do the same thing for a while, started together.

Forked, so the work may be any function; each gets the number of connections to hold. With two cores
more than a few processes only take turns, so connections are dealt to at most `PROCESSES_MAX`.
"""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext

PROCESSES_MAX = 4

# (number of connections, wait for the start) -> how much was done; the second is called when ready.
Work = Callable[[int, Callable[[], None]], int]


# What a member did, and when it began and ended, by one clock for all processes.
Share = tuple[int, float, float]


def together(connection_count: int, work: Work) -> tuple[int, float]:
    """Run `work` over that many connections in all; returns what was done and the seconds from
    the first start to the last end. Raises RuntimeError where one of several processes fails."""
    context = multiprocessing.get_context("fork")
    process_count = min(connection_count, PROCESSES_MAX)
    start = context.Barrier(process_count)

    def member(connections: int) -> Share:
        began = [0.0]

        def ready() -> None:
            start.wait()
            began[0] = time.perf_counter()

        done = work(connections, ready)
        return done, began[0], time.perf_counter()

    if process_count == 1:
        results = [member(connection_count)]
    else:
        results = _forked(
            context,
            member,
            [
                connection_count // process_count + (number < connection_count % process_count)
                for number in range(process_count)
            ],
        )
    done = sum(result[0] for result in results)
    return done, max(result[2] for result in results) - min(result[1] for result in results)


def _forked(context: ForkContext, member: Callable[[int], Share], shares: list[int]) -> list[Share]:
    """The answer of a process for each share. Raises RuntimeError at the first that has none: the
    others, which would wait for it, are ended."""

    def run(share: int, pipe: Connection) -> None:
        try:
            pipe.send(member(share))
        except Exception as error:
            pipe.send(f"a client failed: {error!r}")

    processes, waiting, results = [], [], []
    try:
        for share in shares:
            ours, theirs = context.Pipe(duplex=False)
            processes.append(context.Process(target=run, args=(share, theirs)))
            processes[-1].start()
            theirs.close()  # so that the end of that process is the end of the pipe
            waiting.append(ours)
        while waiting:
            for pipe in wait(waiting):
                assert isinstance(pipe, Connection)
                waiting.remove(pipe)
                with pipe:
                    answer = pipe.recv()
                if isinstance(answer, str):
                    raise RuntimeError(answer)
                results.append(answer)
    except EOFError:
        raise RuntimeError("a client's process ended without an answer") from None
    finally:
        for pipe in waiting:
            pipe.close()
        for process in processes:
            process.kill()
            process.join()
    return results
