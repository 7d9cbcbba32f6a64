"""No thread of the package ends in silence: each is a Worker, or its row here says why not."""

import ast
from fnmatch import fnmatch

from tests import ROOT
from tests.unit import files_below, text_of

# Module -> how an exception in its plain threads is noticed.
PLAIN = {
    "runtime/workers.py": "the helper itself",
    "runtime/signals.py": "only sets an event, or ends the process",
    "producer/aio.py": "each call's exception goes to the task that awaits it",
    "consumer/aio.py": "each exception goes to the task that awaits the next message",
    "broker/process.py": "waits for one event, then stops the loop",
    "broker/core/*_threads.py": "each exception becomes the error of its job",
}


def starts_a_thread(source: str) -> bool:
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) in {"threading.Thread", "Thread"}
        for node in ast.walk(ast.parse(source))
    )


def test_every_thread_is_a_worker_or_stands_in_the_table() -> None:
    found = {
        next((row for row in PLAIN if fnmatch(module, row)), module)
        for path in files_below(["kafka2011"], ".py")
        if starts_a_thread(text_of(path))
        for module in [str(path.relative_to(ROOT / "kafka2011"))]
    }
    assert found == set(PLAIN), "use kafka2011.runtime.workers.Worker"
