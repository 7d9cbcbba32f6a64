"""Random walks through a world, the schedule that a failed one leaves, and how to shorten it."""

import random
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka2011.broker.replication.effects import WriteState
from tests.simulation.hosts import PARTITIONS, End, Host
from tests.simulation.invariants import Violation
from tests.simulation.registry import Request
from tests.simulation.world import Action, World

Arguments = tuple[Any, ...]
# More would make walks slower, and find nothing that fewer do not.
ENTRIES_MAX = 20


@dataclass(frozen=True)
class Outcome:
    """How a walk ended; `broken`: the invariant that did not hold, or an exception's name."""

    schedule: list[Action]
    broken: str | None = None
    text: str = ""


# --- choosing ------------------------------------------------------------------------------------


def _any(world: World, rng: random.Random) -> Arguments:
    return (_host(world, rng),)


def _host(world: World, rng: random.Random) -> str:
    return world.names[int(rng.random() * len(world.names))]


def _with(field: Callable[[Host], object]) -> Callable[[World, random.Random], Arguments | None]:
    """A host for which there is something to do."""

    def choose(world: World, rng: random.Random) -> Arguments | None:
        names = [host.name for host in world.hosts.values() if field(host)]
        return (names[int(rng.random() * len(names))],) if names else None

    return choose


def _with_request(
    is_wanted: Callable[[Request], bool],
) -> Callable[[World, random.Random], Arguments | None]:
    """A host by what it asks of ZooKeeper; one with a slow connection is hardly ever chosen."""

    def choose(world: World, rng: random.Random) -> Arguments | None:
        hosts = [h for h in world.hosts.values() if h.request and is_wanted(h.request)]
        if not hosts:
            return None
        host = hosts[int(rng.random() * len(hosts))]
        return None if host.is_slow and rng.random() < 0.95 else (host.name,)

    return choose


def _is_write(request: Request) -> bool:
    return isinstance(request.effect, WriteState)


def _apply(world: World, rng: random.Random) -> Arguments | None:
    host = _with_request(lambda request: not request.answer)(world, rng)
    return host and (*host, rng.choice((0, 0, 1, 2, 4, 8)))


def _watch(world: World, rng: random.Random) -> Arguments | None:
    host = _with(lambda host: host.must_watch)(world, rng)
    return None if host and world.hosts[host[0]].is_slow and rng.random() < 0.95 else host


def _end(world: World, rng: random.Random, of: list[End]) -> tuple[str, str] | None:
    if not of:
        return None
    end = of[int(rng.random() * len(of))]
    assert end.other is not None
    return end.other.host, end.host


def _frame(world: World, rng: random.Random) -> Arguments | None:
    pair = _end(world, rng, [end for end in world.links if end.queue])
    return pair and (*pair, 0 if rng.random() < 0.8 else rng.randrange(3))


def _break(world: World, rng: random.Random) -> Arguments | None:
    pair = _end(world, rng, world.links)
    return pair and (*pair, rng.randrange(2), rng.randrange(4))


def _flush(world: World, rng: random.Random) -> Arguments | None:
    unflushed = [
        (host.name, partition)
        for host in world.hosts.values()
        for partition, log in host.disk.logs.items()
        if log.durable < len(log.entries)
    ]
    return (*rng.choice(unflushed), rng.randrange(1, 4)) if unflushed else None


def _die_in_cut(world: World, rng: random.Random) -> Arguments | None:
    host = _with(lambda host: host.disk.cuts)(world, rng)
    return host and (*host, rng.randrange(2), rng.randrange(4))


def _put(world: World, rng: random.Random) -> Arguments | None:
    serving = [
        host.name for host in world.hosts.values() if host.machine and host.machine.takes_produces
    ]
    if not serving:
        return None
    name, partition = rng.choice(serving), rng.choice(PARTITIONS)
    full = len(world.hosts[name].disk.logs[partition].entries) >= ENTRIES_MAX
    return None if full else (name, partition)


def _late(world: World, rng: random.Random) -> Arguments | None:
    return (rng.randrange(len(world.late)),) if world.late else None


def _retire(world: World, rng: random.Random) -> Arguments | None:
    logs = [
        (host.name, partition, copy)
        for host in world.hosts.values()
        if host.runs and host.machine and host.machine.leads
        for partition, copy in host.machine.context.copies.items()
        if copy.start < copy.written
    ]
    if not logs:
        return None
    name, partition, copy = rng.choice(logs)
    return name, partition, rng.randint(copy.start + 1, copy.written)


TICKS_MS = (60, 60, 260, 260, 1_100, 1_100, 2_100, 3_000, 16_000)

# action -> how often it is tried, and its arguments
ALPHABET: dict[str, tuple[float, Callable[[World, random.Random], Arguments | None]]] = {
    # what goes on all the time
    "frame": (40, _frame),
    "flush": (14, _flush),
    "journal": (12, _with(lambda host: host.disk.journal)),
    "cut": (4, _with(lambda host: host.disk.cuts)),
    "dial": (6, _with(lambda host: host.dials)),
    "canvass": (5, _with(lambda host: host.canvasses)),
    "ask": (12, _with_request(lambda request: True)),
    "apply": (3, _apply),
    "answer": (5, _with_request(lambda request: request.answer is not None)),
    "watch": (4, _watch),
    "renew": (2, _any),
    "tick": (6, lambda w, r: (_host(w, r), r.choice(TICKS_MS))),
    "put": (8, _put),
    "take": (1, _put),
    "write": (1, _with(lambda host: host.taken)),
    "drained": (4, _with(lambda host: host.is_draining)),
    "make": (4, lambda w, r: (_host(w, r), r.choice(PARTITIONS))),
    "barrier": (2, _any),
    "look_up": (2, lambda w, r: (r.randrange(2),)),
    "read": (3, lambda w, r: (r.randrange(2), r.choice(PARTITIONS))),
    "retire": (2, _retire),
    "remove_segments": (4, _with(lambda host: host.disk.removals)),
    "no_room": (10, _with(lambda host: host.refused)),
    "free": (0.5, _with(lambda host: host.is_full)),
    "start": (3, _with(lambda host: host.machine is None)),
    "die_at_start": (0.5, _with(lambda host: host.machine is None)),
    "go_on": (1.5, _with(lambda host: host.is_paused)),
    # faults
    "crash": (0.5, lambda w, r: (_host(w, r), r.randrange(3))),
    "die_in_cut": (0.5, _die_in_cut),
    "power": (0.3, lambda w, r: (_host(w, r), r.randrange(16))),
    "pause": (0.4, _any),
    "fail_flush": (0.05, lambda w, r: (_host(w, r), r.choice(PARTITIONS))),
    "fill": (0.3, _any),
    "wipe": (0.4, _with(lambda host: host.machine is None)),
    "back_up": (1, _with(lambda host: host.machine is None)),
    "restore": (2, _with(lambda host: host.machine is None)),
    "break": (0.5, _break),
    "lose": (1.5, _with_request(_is_write)),
    "late": (1.5, _late),
    "never": (0.1, _late),
    "expire": (0.5, _any),
    # operators
    "hand_over": (0.1, _any),
    "min_insync": (0.15, lambda w, r: (r.randrange(1, 4),)),
    "remove": (0.1, _any),
    "add": (0.5, _any),
    "want": (0.1, _any),
    "begin_anew": (0.1, _any),
}
_NAMES = list(ALPHABET)
_FAULTS = _NAMES[_NAMES.index("crash") :]


def _weights(rng: random.Random) -> list[float]:
    """The weights of one walk: its own mixture of faults, some left out, as a fault that needs a
    quiet time to do harm would otherwise hardly get it."""
    factors = {name: rng.choice((0, 0.1, 0.3, 1, 2)) for name in _FAULTS}
    return [weight * factors.get(name, 1) for name, (weight, _) in ALPHABET.items()]


def walk(world: World, rng: random.Random, steps: int) -> Outcome:
    """Take that many random steps, then mend everything, which has to come to rest."""

    def go() -> None:
        for name in world.hosts:
            world.do(("start", name))
        weights = _weights(rng)
        for host in world.hosts.values():
            host.is_slow = rng.random() < 0.15
        done = 0
        while done < steps:
            for name in rng.choices(_NAMES, weights, k=64):
                arguments = ALPHABET[name][1](world, rng)
                if arguments is not None:
                    done += world.do((name, *arguments))
        mend(world)

    return _run(world, go)


def replay(world: World, schedule: Iterable[Action]) -> Outcome:
    """Repeat a schedule, leaving out what cannot be done, so that parts can be replayed."""

    def go() -> None:
        for action in schedule:
            world.do(action)

    return _run(world, go)


def _run(world: World, go: Callable[[], None]) -> Outcome:
    try:
        go()
    except Violation as violation:
        return Outcome(world.schedule, violation.invariant, str(violation))
    except Exception as error:  # the machine's own assertions count as well
        return Outcome(world.schedule, type(error).__name__, traceback.format_exc())
    return Outcome(world.schedule)


# --- coming to rest ------------------------------------------------------------------------------

ROUNDS_MAX = 300


def mend(world: World) -> None:
    """End every fault, and let everything happen in turn. Raises Violation (I10) when that does
    not end with one leader, all members in sync, and everything confirmed."""
    world.late.clear()
    for name, host in world.hosts.items():
        world.do(("go_on", name))
        world.do(("free", name))
        if host.disk.is_suspect:
            world.do(("crash", name))
        world.do(("start", name))
        world.do(("add", name))
    for _ in range(ROUNDS_MAX):
        for name in world.hosts:
            turn(world, name)
        if (trouble := unrest(world)) is None:
            return
    raise Violation("I10", trouble or "")


def turn(world: World, name: str) -> None:
    for action in (
        *("renew", "watch", "answer", "ask", "dial", "canvass"),
        *("no_room", "remove_segments", "cut", "journal"),
    ):
        while world.do((action, name)):
            if action in ("answer", "ask"):
                break
    world.do(("write", name))
    world.do(("drained", name))
    for partition in PARTITIONS:
        world.do(("flush", name, partition))
    for other in world.hosts:
        while world.do(("frame", other, name)):
            pass
    world.do(("tick", name, 300))


def unrest(world: World) -> str | None:
    """What keeps the world from rest; None when nothing does."""
    state = world.registry.state
    leaders = [
        host
        for host in world.hosts.values()
        if host.is_open and host.machine and host.machine.leads
    ]
    if len(leaders) != 1 or leaders[0].disk.directory != state.leader:
        return f"leaders {[host.name for host in leaders]}, {state}"
    if world.registry.address != (leaders[0].name, leaders[0].run):
        return f"{leaders[0].name} leads, {world.registry.address} is shown"
    if leaders[0].opening:
        return f"{leaders[0].name} takes nothing for {leaders[0].opening}"
    if state.isr != {host.disk.directory for host in world.hosts.values()}:
        return f"in sync are {sorted(state.isr)} of {state.members}"
    for name, confirmed in world.judge.confirmed.items():
        for host in world.hosts.values():
            copy = host.machine.context.copies.get(name) if host.machine else None
            if copy is not None and copy.watermark != len(confirmed):
                return f"{host.name} knows {name} as confirmed to {copy.watermark}: {confirmed}"
            log = host.disk.logs[name]
            if (
                leaders[0].disk.logs[name].start > log.start
                or log.entries[log.start :] != confirmed[log.start :]
                or len(log.entries) != len(confirmed)
            ):
                return f"{host.name} {name}: {host.disk.logs[name]}, confirmed {confirmed}"
    return None


# --- shorter schedules ---------------------------------------------------------------------------


def shortened(
    new_world: Callable[[], World], schedule: Sequence[Action], broken: str, tries: int = 1_500
) -> Outcome:
    """A part of the schedule that breaks the same thing: parts are left out while it still does."""
    best = replay(new_world(), schedule)
    size = len(best.schedule) // 2
    while size and tries > 0:
        start = 0
        shorter = False
        while start < len(best.schedule) and tries > 0:
            tries -= 1
            part = best.schedule[:start] + best.schedule[start + size :]
            outcome = replay(new_world(), part)
            if outcome.broken == broken:
                best, shorter = outcome, True
            else:
                start += size
        if not shorter or size > 1:
            size //= 2
    return best


def text_of(schedule: Sequence[Action]) -> str:
    """One action a line, as `parsed` reads it."""
    return "\n".join(" ".join(str(part) for part in action) for action in schedule)


def parsed(text: str) -> list[Action]:
    """The actions of a schedule; empty lines and those that begin with # are ignored."""
    lines = [line.split() for line in text.splitlines()]
    return [
        tuple(int(part) if part.isdigit() else part for part in line)
        for line in lines
        if line and not line[0].startswith("#")
    ]
