"""What do the hot loops of the codec cost per message, pure and compiled?

No broker and no socket: below the API, so these rows say what the codec leaves to the rest. The
best of several runs, 200-byte payloads. `python -m benchmarks.codec` prints the table.
"""

import importlib
import random
import timeit
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from benchmarks.machine import facts
from kafka2011.protocol import _hot_pure
from kafka2011.protocol.compression import DecompressionBudget
from kafka2011.protocol.requests import ProduceRequest, encode_request

PAYLOAD_BYTES = 200
MESSAGES = 5_000
LIMIT = 10**9


def cost_ns(action: Callable[[], object], message_count: int) -> float:
    """Nanoseconds per message: the best of five, each long enough to trust the clock."""
    timer = timeit.Timer(action)
    number, _ = timer.autorange()
    return min(timer.repeat(5, number)) / number / message_count * 1e9


def measure(twin: ModuleType) -> dict[str, float]:
    """Question -> nanoseconds per message."""
    rng = random.Random(2011)
    payloads = [rng.randbytes(PAYLOAD_BYTES) for _ in range(50)]
    fifty = twin.encode(payloads)
    one = twin.encode(payloads[:1])
    large = fifty * (MESSAGES // 50)
    single_requests = encode_request(ProduceRequest("test", 0, one)) * MESSAGES
    batch_requests = encode_request(ProduceRequest("test", 0, fifty)) * (MESSAGES // 50)
    budget = DecompressionBudget()

    def runs(stream: bytes) -> Callable[[], object]:
        # Taking runs moves bytes in the buffer, so that each look needs its own copy.
        return lambda: twin.produce_runs(bytearray(stream), 0, len(stream), LIMIT, LIMIT)

    return {
        "validate a set of 50": cost_ns(lambda: twin.scan(fifty, LIMIT, budget), 50),
        "validate a set of 1": cost_ns(lambda: twin.scan(one, LIMIT, budget), 1),
        "take produce requests of 50": cost_ns(runs(batch_requests), MESSAGES),
        "take produce requests of 1": cost_ns(runs(single_requests), MESSAGES),
        "recovery's check": cost_ns(lambda: twin.check_entries(large), MESSAGES),
        "complete entries": cost_ns(lambda: twin.split(large), MESSAGES),
        "payloads": cost_ns(lambda: twin.payloads(large), MESSAGES),
        "payloads with next offsets": cost_ns(lambda: twin.messages(large, 0), MESSAGES),
        "message objects": cost_ns(lambda: twin.consumed(large, 0, "test", 1, 0), MESSAGES),
        "make a set of 50": cost_ns(lambda: twin.encode(payloads), 50),
        "make a produce request of 1": cost_ns(
            lambda: encode_request(ProduceRequest("test", 0, twin.encode(payloads[:1]))), 1
        ),
    }


def main() -> None:
    print(", ".join(f"{name} {value}" for name, value in facts(Path()).items()))
    pure = measure(_hot_pure)
    try:
        compiled = measure(importlib.import_module("kafka2011.protocol._hot_compiled"))
    except ImportError:  # not built
        compiled = {}
    print(f"{'nanoseconds per message':<32}{'pure':>10}{'compiled':>10}")
    for name, cost in pure.items():
        other = f"{compiled[name]:>10.1f}" if compiled else f"{'-':>10}"
        print(f"{name:<32}{cost:>10.1f}{other}")


if __name__ == "__main__":
    main()
