"""Targets without a broker: both twins on the same bytes, and what each must never do.

A target takes a seeded generator and raises AssertionError when a rule is broken. Any exception
that is not one of the project's own is a finding as well.
"""

import importlib
import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kafka2011.broker.log import recovery
from kafka2011.protocol import _hot_pure
from kafka2011.protocol.compression import DecompressionBudget, decompress
from kafka2011.protocol.errors import KafkaError, RemoteProtocolError
from kafka2011.protocol.requests import decode_request
from tests.fuzz import mutation

Target = Callable[[random.Random], None]

LIMIT = 100_000
UNPACKED_MAX = 1024 * 1024
SETS = mutation.sets()
REQUESTS = mutation.requests()


def _twins() -> list[ModuleType]:
    try:
        return [_hot_pure, importlib.import_module("kafka2011.protocol._hot_compiled")]
    except ImportError:  # not built: the pure twin is held to the other rules all the same
        return [_hot_pure]


TWINS = _twins()


def outcome(call: Callable[[], Any]) -> tuple[object, ...]:
    """What a call returned, or what it raised, in a form that can be compared."""
    try:
        return ("returned", call())
    except KafkaError as error:
        return (type(error).__name__, str(error), getattr(error, "position", None))


def agree(question: Callable[[ModuleType], Any], about: bytes) -> None:
    answers = [outcome(lambda twin=twin: question(twin)) for twin in TWINS]
    assert all(answer == answers[0] for answer in answers), f"{answers} about {about.hex()}"


def message_sets(rng: random.Random) -> None:
    """Every loop over a set, in both twins."""
    data = mutation.mutated_set(rng, SETS)
    limit = rng.choice((LIMIT, 0, 5, 200))

    def scan(twin: ModuleType) -> object:
        budget = DecompressionBudget(UNPACKED_MAX)
        return tuple(twin.scan(data, limit, budget)), budget.bytes_left

    agree(scan, data)
    agree(lambda twin: tuple(twin.check_entries(data)), data)
    agree(lambda twin: twin.split(data), data)
    agree(lambda twin: twin.messages(data, 1000, UNPACKED_MAX), data)
    agree(lambda twin: twin.payloads(data, UNPACKED_MAX), data)
    agree(lambda twin: twin.take_messages(data, 1000, UNPACKED_MAX, limit + 1), data)
    agree(lambda twin: twin.take_payloads(data, UNPACKED_MAX, limit + 1), data)
    agree(
        lambda twin: [
            (message.payload, message.next_offset)
            for message in twin.consumed(data, 7, "t", 1, 2, wrapper_bytes_max=UNPACKED_MAX)
        ],
        data,
    )


def produce_runs(rng: random.Random) -> None:
    """Runs of a receive buffer with good and bad frames in it."""
    frames = [rng.choice(REQUESTS) for _ in range(rng.randint(1, 8))]
    at = rng.randrange(len(frames))
    if rng.random() < 0.8:
        frames[at] = mutation.mutated(rng, frames[at], REQUESTS)
    data = b"".join(frames)[: mutation.BYTES_MAX]
    start = rng.choice((0, 0, rng.randint(0, len(data))))

    def runs(twin: ModuleType) -> object:
        buffer = bytearray(data)
        position, found = twin.produce_runs(buffer, start, len(data), LIMIT, LIMIT)
        assert start <= position <= len(data)
        return position, [(*run, bytes(buffer[run[1] : run[2]])) for run in found]

    agree(runs, data)


def request_bodies(rng: random.Random) -> None:
    """A body is a request, or RemoteProtocolError."""
    body = mutation.mutated(rng, rng.choice(REQUESTS)[4:], REQUESTS)
    try:
        decode_request(body)
    except RemoteProtocolError:
        pass


def compressed(rng: random.Random) -> None:
    """Never more than allowed; InvalidMessage or bytes."""
    packed = mutation.wrapped(rng, rng.choice(SETS))[10:]
    packed = mutation.mutated(rng, packed, SETS)
    bytes_max = rng.choice((0, 100, UNPACKED_MAX))
    result = outcome(lambda: decompress(rng.choice((1, 2)), packed, bytes_max))
    if result[0] == "returned":
        assert len(result[1]) <= bytes_max


def segments(rng: random.Random) -> None:
    """Recovery keeps every whole entry before the damage, and what it leaves is clean."""
    good = [mutation.entry(rng.randbytes(rng.randint(0, 200))) for _ in range(rng.randint(0, 12))]
    whole = b"".join(good)
    damaged = mutation.mutated(rng, whole, SETS)
    found = recovery.examine(lambda count, at: damaged[at : at + count], len(damaged))
    assert found.size_bytes == len(damaged)
    assert 0 <= found.valid_bytes <= len(damaged)
    same = next(
        (at for at, (a, b) in enumerate(zip(whole, damaged, strict=False)) if a != b),
        min(len(whole), len(damaged)),
    )
    end = kept = 0
    for one in good:
        end += len(one)
        if end <= same:
            kept = end
    assert found.valid_bytes >= kept, f"{found} loses whole entries of {damaged.hex()}"
    rest = damaged[: found.valid_bytes]
    again = recovery.examine(lambda count, at: rest[at : at + count], len(rest))
    assert again.verdict is recovery.Verdict.CLEAN, f"{again} after {found}"


TARGETS: dict[str, Target] = {
    "message sets, both twins": message_sets,
    "produce runs, both twins": produce_runs,
    "request bodies": request_bodies,
    "compressed payloads": compressed,
    "segments": segments,
}


def round_of(seed: int, name: str, number: int) -> None:
    """One round, the same each time."""
    TARGETS[name](random.Random(f"{seed}:{name}:{number}"))
