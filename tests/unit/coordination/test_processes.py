"""The process registry: who is registered under a name, and who is not."""

from collections.abc import Callable
from typing import Any

import pytest
import structlog

from kafka2011.coordination import processes
from kafka2011.coordination.processes import (
    ProcessRecord,
    Registration,
    alive,
    look,
    read_record,
    register_process,
)
from tests.support.memory_zookeeper import InMemoryRegistry, InMemoryZooKeeper
from tests.support.waiting import DEADLINE_S, wait_until


def test_a_name_that_another_process_has_is_said_once_and_taken_when_it_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two hosts with the same file: the second was registered nowhere, without a word."""
    monkeypatch.setattr(processes, "RETRY_S", 0.001)
    zookeeper = InMemoryZooKeeper()

    def registered(pid: int) -> Registration:
        registry = InMemoryRegistry(zookeeper)
        registry.start()
        return register_process(registry, ProcessRecord("live", "mirror-1", "mirror", pid=pid))

    looking = InMemoryRegistry(zookeeper)
    looking.start()
    with structlog.testing.capture_logs() as said:
        first = registered(1)
        wait_until(lambda: [one.pid for one in alive(looking)] == [1], "the first is there")
        second = registered(2)
        wait_until(lambda: said, "it is said that the name is taken")
        first.close()
        wait_until(lambda: [one.pid for one in alive(looking)] == [2], "the second is there")
        second.close()
    [line] = said
    assert (line["event"], line["log_level"]) == ("process_name_taken", "warning")
    assert (line["name"], line["by"]) == ("mirror-1", '{"address": "", "metrics": "", "pid": 1}')


def test_the_goodbye_of_a_process_whose_name_another_has_is_not_that_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other was called stopped when it was killed later, which is no alert."""
    monkeypatch.setattr(processes, "RETRY_S", 0.001)
    zookeeper = InMemoryZooKeeper()
    registries = [InMemoryRegistry(zookeeper) for _ in range(2)]
    for registry in registries:
        registry.start()
    record = ProcessRecord("live", "mirror-1", "mirror")
    first = register_process(registries[0], record)
    assert first.wait(DEADLINE_S)
    with structlog.testing.capture_logs() as said:
        second = register_process(registries[1], record)
        wait_until(lambda: said, "it is said that the name is taken")
        second.close()
    assert not read_record(registries[0], "live", "mirror-1").said_goodbye
    first.close()
    assert read_record(registries[0], "live", "mirror-1").said_goodbye


def test_at_no_moment_of_its_start_or_stop_does_a_process_look_as_if_it_had_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Expected, not alive and not stopped: on a busy machine the dashboard called it down."""
    zookeeper = InMemoryZooKeeper()
    looking = InMemoryRegistry(zookeeper)
    looking.start()
    seen: list[tuple[bool, bool]] = []

    def watched(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **options: Any) -> Any:
            found = change(*values, **options)
            seen.append((bool(alive(looking)), read_record(looking, "live", "site").said_goodbye))
            return found

        return call

    for name in ("put", "create_ephemeral", "delete_own"):
        monkeypatch.setattr(InMemoryRegistry, name, watched(getattr(InMemoryRegistry, name)))
    for _ in range(2):
        registry = InMemoryRegistry(zookeeper)
        registry.start()
        site = register_process(registry, ProcessRecord("live", "site", "site"))
        assert site.wait(DEADLINE_S)
        site.close()
        registry.close()
    assert (False, False) not in seen
    assert seen.count((True, False)) == 2


@pytest.mark.parametrize("reads_before", range(6))
@pytest.mark.parametrize("is_start", [True, False], ids=["it starts", "it stops"])
def test_a_process_that_starts_or_stops_between_two_reads_is_not_seen_dead(
    monkeypatch: pytest.MonkeyPatch, reads_before: int, is_start: bool
) -> None:
    """One that started while the dashboard read was *down: not registered* until its next read."""
    zookeeper = InMemoryZooKeeper()
    looking, its_own = InMemoryRegistry(zookeeper), InMemoryRegistry(zookeeper)
    looking.start()
    its_own.start()
    record = ProcessRecord("live", "site", "site")
    site = register_process(its_own, record)
    assert site.wait(DEADLINE_S)
    if is_start:
        site.close()
    reads = 0

    def counting(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(registry: InMemoryRegistry, *values: Any) -> Any:
            nonlocal reads
            if registry is looking:
                reads += 1
                if reads == reads_before + 1:
                    if is_start:
                        assert register_process(its_own, record).wait(DEADLINE_S)
                    else:
                        site.close()
            return read(registry, *values)

        return call

    for name in ("children", "get", "get_many"):
        monkeypatch.setattr(InMemoryRegistry, name, counting(getattr(InMemoryRegistry, name)))
    [found], living = look(looking)
    assert found.said_goodbye or [one.name for one in living] == ["site"]
    assert reads > reads_before, "it happened meanwhile"
