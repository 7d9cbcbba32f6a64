"""`get-offsets`: 0.7's output, and beside it what that does not tell."""

import pytest

from tests.conftest import Run
from tests.support.memory_deployment import Deployment, numbered


@pytest.mark.parametrize("time", ["-1", "-2"])
def test_a_topic_that_is_not_there_is_named_beside_the_answer_of_0_7(
    deployment: Deployment, run: Run, time: str
) -> None:
    """0 is the answer for an empty log, too: a slip in the name looked like one."""
    broker = deployment.broker_of_t(numbered(0, 5))
    words = ("get-offsets", "--server", f"{broker.host}:{broker.port}", "--time", time)
    done = run(*words, "--topic", "nosuch")
    assert (done.status, done.out) == (0, "get 1 results\n0\n")
    assert done.err == (
        "kafka2011: nothing was ever sent to partition 0 of topic 'nosuch' on the broker at "
        f"{broker.host}:{broker.port} (topics describe: what there is)\n"
    )
    done = run(*words, "--topic", "t")
    assert (done.out, done.err) == (f"get 1 results\n{55 if time == '-1' else 0}\n", "")
