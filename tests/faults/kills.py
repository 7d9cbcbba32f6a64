"""A broker that is killed at a random moment while threads work on it."""

import os
import random
import threading
import time
from collections.abc import Callable, Sequence

from tests.support.brokers import RawClient, RunningBroker
from tests.support.waiting import DEADLINE_S, wait_until

# 0: any, as in the campaigns.
SEED = int(os.environ.get("FAULT_SEED", "2011")) or random.SystemRandom().randrange(1, 2**31)


def rounds(usual: int) -> int:
    """How many kills: FAULT_ROUNDS, or as many as usual; printed with the seed."""
    found = int(os.environ.get("FAULT_ROUNDS", str(usual)))
    print(f"FAULT_SEED={SEED} FAULT_ROUNDS={found}")
    return found


class UntilDeath(threading.Thread):
    """Takes `step` after `step` on one connection until the broker is gone."""

    def __init__(self, broker: RunningBroker) -> None:
        super().__init__()
        self._broker = broker

    def step(self, client: RawClient) -> None:
        """ConnectionError or TimeoutError end the thread."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            with self._broker.connect() as client:
                while True:
                    self.step(client)
        except (ConnectionError, TimeoutError):
            pass


def kill_under(
    broker: RunningBroker,
    threads: Sequence[UntilDeath],
    is_confirmed: Callable[[], bool],
    rng: random.Random,
) -> None:
    """Start the threads, kill the broker at some moment after `is_confirmed`, and wait until all
    threads have ended."""
    for thread in threads:
        thread.start()
    wait_until(is_confirmed, "the first barriers")
    kill_at_s = time.monotonic() + rng.uniform(0, 0.4)
    wait_until(lambda: time.monotonic() >= kill_at_s, "the moment to kill")
    broker.kill()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
