"""What every `coordination.registry.Registry` must do: one suite for the double and for ZooKeeper.

A test class inherits `RegistryContract` and provides the fixture `world`, which makes registries
that see the same tree and can expire their sessions.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from kafka2011.coordination import cluster, paths, processes
from kafka2011.coordination.errors import (
    CoordinationUnavailable,
    NodeConflict,
    NodeExists,
    NotEmpty,
    RegistryClosed,
    SessionLost,
    VersionConflict,
)
from kafka2011.coordination.registry import (
    ABSENT,
    Creation,
    Deletion,
    Registry,
    SessionEvent,
    Stored,
)
from tests.support.processes import expect_process
from tests.support.waiting import wait_until


class World(Protocol):
    def registry(self) -> Registry:
        """A started registry that sees this test's tree; closed at the end of the test."""

    def expire(self, registry: Registry) -> None:
        """Lose its session for good: server and client agree on it."""

    def expire_only_in_client(self, registry: Registry) -> None:
        """The client gets a new session while the server still keeps the old one's nodes."""


def wait_for_a_session(registry: Registry, after: int | None) -> None:
    wait_until(lambda: registry.session_id() not in (None, after), "a new session")


class Watched(list[list[str]]):
    """Every list of children that a watch gave."""

    def wait_for(self, *children: str) -> None:
        expected = list(children)
        wait_until(lambda: self and self[-1] == expected, lambda: f"{expected} last in {self}")


class RegistryContract:
    @pytest.fixture
    def one(self, world: World) -> Registry:
        return world.registry()

    @pytest.fixture
    def two(self, world: World) -> Registry:
        return world.registry()

    # --- nodes -----------------------------------------------------------------------------------

    def test_many_are_read_as_one_after_another(self, one: Registry, two: Registry) -> None:
        one.create("/many/a", b"1")
        one.put("/many/b", b"2")
        one.put("/many/b", b"3")
        one.create_ephemeral("/many/c", b"4")
        wanted = ["/many/b", "/none", "/many/c", "/many/a", *["/none"] * 250, "/many/b"]
        for registry in (one, two):
            assert registry.get_many(wanted) == [registry.get(path) for path in wanted]
            assert registry.get_many([]) == []
            assert registry.children_many(["/none", "/many"]) == [[], ["a", "b", "c"]]
        one.close()
        with pytest.raises(RegistryClosed):
            one.get_many(["/many/a"])

    def test_a_closed_registry_says_so(self, one: Registry) -> None:
        one.close()
        with pytest.raises(RegistryClosed):
            one.get("/a")
        with pytest.raises(RegistryClosed):
            one.put("/a", b"x")
        with pytest.raises(RegistryClosed):
            one.create_ephemeral("/a", b"x")

    def test_a_node_that_is_not_there(self, one: Registry) -> None:
        assert one.get("/no/such") is None
        assert not one.exists("/no/such")
        assert one.children("/no/such") == []
        assert one.delete("/no/such") is False
        one.delete_recursive("/no/such")

    def test_create_makes_parents_with_null_data(self, one: Registry, two: Registry) -> None:
        one.create("/a/b/c", b"text")
        assert two.get("/a/b/c") == (b"text", 0, False)
        assert two.get("/a") == (None, 0, False)
        with pytest.raises(NodeExists):
            two.create("/a/b/c", b"text")
        one.create("/empty", b"")
        one.create("/null")
        assert one.get("/empty") == (b"", 0, False)
        assert one.get("/null") == (None, 0, False)

    def test_stat_tells_what_stands_beside_the_value(self, one: Registry, two: Registry) -> None:
        assert one.stat("/st/no") is None
        one.create("/st/a", b"text")
        one.create("/st/b", b"", ephemeral=True)
        made, above, ephemeral = two.stat("/st/a"), two.stat("/st"), two.stat("/st/b")
        assert made
        assert above
        assert ephemeral
        assert made[:6] == (0, made.created_ms, made.created_ms, False, 4, 0)
        assert above.created <= made.created == made.modified < ephemeral.created
        assert made.created_ms > 0
        assert (above.is_ephemeral, above.child_count) == (False, 2)
        assert (ephemeral.is_ephemeral, ephemeral.size_bytes) == (True, 0)
        one.put("/st/a", b"longer text")
        changed = two.stat("/st/a")
        assert changed
        assert changed[:6] == (1, made.created_ms, changed.modified_ms, False, 11, 0)
        assert (changed.created, changed.modified > ephemeral.modified) == (made.created, True)
        assert changed.modified_ms >= made.created_ms

    def test_children_are_sorted_as_text(self, one: Registry) -> None:
        for name in ("10", "2", "1"):
            one.create(f"/top/{name}")
        assert one.children("/top") == ["1", "10", "2"]
        assert "top" in one.children("/")

    def test_ensure_keeps_what_is_there(self, one: Registry) -> None:
        one.ensure("/e/f")
        one.put("/e/f", b"x")
        one.ensure("/e/f")
        assert one.get("/e/f") == (b"x", 1, False)

    def test_put_creates_sets_and_checks_the_version(self, one: Registry, two: Registry) -> None:
        assert one.put("/p/q", b"1") == 0
        assert one.put("/p/q", b"2") == 1
        assert two.put("/p/q", b"3", expected_version=1) == 2
        for path, version in (("/p/q", 1), ("/p/q", ABSENT), ("/p/absent", 3)):
            with pytest.raises(VersionConflict):
                one.put(path, b"4", expected_version=version)
        assert one.get("/p/q") == (b"3", 2, False)
        assert one.put("/p/new", b"5", expected_version=ABSENT) == 0

    def test_delete_checks_version_and_children(self, one: Registry) -> None:
        one.create("/d/e/f")
        with pytest.raises(NotEmpty):
            one.delete("/d/e")
        with pytest.raises(VersionConflict):
            one.delete("/d/e/f", expected_version=7)
        assert one.delete("/d/e/f", expected_version=0) is True
        one.create("/d/e/g/h")
        one.delete_recursive("/d")
        assert not one.exists("/d")

    # --- ephemerals ------------------------------------------------------------------------------

    def test_an_ephemeral_goes_with_its_registry(self, world: World, two: Registry) -> None:
        leaver = world.registry()
        leaver.create("/eph/x", b"1", ephemeral=True)
        assert leaver.get("/eph/x") == (b"1", 0, True)
        assert two.get("/eph/x") == (b"1", 0, False)
        leaver.close()
        assert not two.exists("/eph/x")
        leaver.close()
        with pytest.raises(CoordinationUnavailable):
            leaver.get("/eph")

    def test_own_ephemeral_with_equal_value_is_success(self, one: Registry) -> None:
        one.create_ephemeral("/own/x", b"me")
        one.create_ephemeral("/own/x", b"me")
        with pytest.raises(NodeConflict):
            one.create_ephemeral("/own/x", b"me, otherwise")

    def test_ephemeral_of_another_is_a_conflict_even_with_equal_value(
        self, one: Registry, two: Registry
    ) -> None:
        one.create_ephemeral("/theirs/x", b"same")
        with pytest.raises(NodeConflict) as caught:
            two.create_ephemeral("/theirs/x", b"same")
        assert (caught.value.path, caught.value.found) == ("/theirs/x", b"same")

    def test_delete_own_never_deletes_another_ones(self, one: Registry, two: Registry) -> None:
        one.create_ephemeral("/o/x", b"me")
        assert two.delete_own("/o/x", b"me") is False
        assert one.delete_own("/o/x", b"not me") is False
        assert two.exists("/o/x")
        assert one.delete_own("/o/x", b"me") is True
        assert one.delete_own("/o/x", b"me") is False
        one.create("/o/persistent", b"me")
        assert one.delete_own("/o/persistent", b"me") is False

    def test_leftover_of_the_own_dead_session_is_replaced(
        self, world: World, one: Registry, two: Registry
    ) -> None:
        one.create_ephemeral("/left/x", b"me")
        old = one.session_id()
        world.expire_only_in_client(one)
        wait_for_a_session(one, old)
        assert one.get("/left/x") == (b"me", 0, False)
        with pytest.raises(NodeConflict):
            two.create_ephemeral("/left/x", b"two")
        one.create_ephemeral("/left/x", b"me again")
        assert one.get("/left/x") == (b"me again", 0, True)

    def test_create_for_a_session_that_is_gone_is_refused(
        self, world: World, one: Registry
    ) -> None:
        old = one.session_id()
        world.expire(one)
        wait_for_a_session(one, old)
        with pytest.raises(SessionLost):
            one.create_ephemeral("/fenced/x", b"me", session=old)
        assert not one.exists("/fenced/x")
        one.create_ephemeral("/fenced/x", b"me", session=one.session_id())

    # --- sessions --------------------------------------------------------------------------------

    def test_true_expiry_removes_ephemerals_and_tells_the_listeners(
        self, world: World, one: Registry, two: Registry
    ) -> None:
        events: list[SessionEvent] = []
        one.add_session_listener(events.append)
        one.add_session_listener(lambda event: pytest.fail("was cancelled")).cancel()
        one.create_ephemeral("/gone/x", b"1")
        world.expire(one)
        wait_until(lambda: SessionEvent.RECREATED in events, lambda: f"RECREATED in {events}")
        lives = [event for event in events if event is not SessionEvent.SUSPENDED]
        assert lives == [SessionEvent.EXPIRED, SessionEvent.RECREATED]
        assert not two.exists("/gone/x")
        one.create_ephemeral("/gone/x", b"2")
        assert two.get("/gone/x") == (b"2", 0, False)

    def test_a_listener_may_use_the_registry(self, world: World, one: Registry) -> None:
        def again(event: SessionEvent) -> None:
            if event is SessionEvent.RECREATED:
                one.create_ephemeral("/again/x", b"1")

        one.add_session_listener(again)
        again(SessionEvent.RECREATED)
        old = one.session_id()
        world.expire(one)
        wait_until(
            lambda: one.session_id() not in (None, old) and (one.get("/again/x") or (0, 0, 0))[2],
            "the node in the new session",
        )

    def test_lease_is_positive_while_the_session_answers(self, one: Registry) -> None:
        wait_until(lambda: one.lease_remaining_ms() > 500, "a lease")
        session = one.session_id()
        assert session is not None
        assert one.lease_remaining_ms(session) > 500
        assert one.lease_remaining_ms(session + 1) == 0
        one.close()
        assert one.session_id() is None

    # --- watches ---------------------------------------------------------------------------------

    def test_watch_tells_now_and_after_each_change(self, one: Registry, two: Registry) -> None:
        seen = Watched()
        one.watch_children("/w/x", seen.append)
        seen.wait_for()  # while the node is not there
        two.create("/w/x/b")
        seen.wait_for("b")
        two.create("/w/x/a")
        seen.wait_for("a", "b")
        two.delete("/w/x/a")
        seen.wait_for("b")
        two.delete_recursive("/w/x")
        seen.wait_for()
        two.create("/w/x/c")
        seen.wait_for("c")

    def test_watch_survives_a_new_session(self, world: World, one: Registry, two: Registry) -> None:
        seen = Watched()
        one.watch_children("/ws", seen.append)
        two.create("/ws/a")
        seen.wait_for("a")
        world.expire(one)
        two.create("/ws/b")
        seen.wait_for("a", "b")
        two.create("/ws/c")
        seen.wait_for("a", "b", "c")

    def test_a_cancelled_watch_is_silent(self, one: Registry, two: Registry) -> None:
        cancelled, kept = Watched(), Watched()
        handle = one.watch_children("/wc", cancelled.append)
        cancelled.wait_for()
        handle.cancel()
        one.watch_children("/wc", kept.append)
        two.create("/wc/a")
        kept.wait_for("a")
        assert ["a"] not in cancelled

    def test_a_watch_callback_may_use_the_registry(self, one: Registry, two: Registry) -> None:
        found: list[Stored | None] = []
        one.watch_children(
            "/wr", lambda children: found.extend(one.get(f"/wr/{name}") for name in children)
        )
        two.create("/wr/a", b"value")
        wait_until(lambda: (b"value", 0, False) in found, lambda: str(found))

    def test_a_version_is_watched(self, one: Registry, two: Registry) -> None:
        seen: list[int] = []
        one.watch_version("/wv", seen.append)
        wait_until(lambda: seen == [ABSENT], lambda: str(seen))
        two.create("/wv", b"0")
        wait_until(lambda: seen[-1] == 0, lambda: str(seen))
        two.put("/wv", b"1")
        wait_until(lambda: seen[-1] == 1, lambda: str(seen))
        two.delete("/wv")
        wait_until(lambda: seen[-1] == ABSENT, lambda: str(seen))

    def test_catching_up_shows_what_changed_before(self, one: Registry, two: Registry) -> None:
        seen: list[list[str]] = []
        one.watch_children("/wu", seen.append)
        for number in range(20):
            two.create(f"/wu/{number:02}")
            one.catch_up()
            assert len(seen[-1]) == number + 1, "a change of before is not in what was seen"

    # --- written once ----------------------------------------------------------------------------

    def test_what_is_put_once_needs_the_version(self, one: Registry) -> None:
        with pytest.raises(VersionConflict):
            one.put_once("/once", b"0", 0)
        one.create("/once", b"0")
        assert one.put_once("/once", b"1", 0) == 1
        with pytest.raises(VersionConflict):
            one.put_once("/once", b"2", 0)
        assert one.get("/once") == (b"1", 1, False)

    def test_a_commit_is_whole_or_nothing(self, one: Registry, two: Registry) -> None:
        one.create("/c", b"state")
        one.create("/c/theirs", b"x", ephemeral=True)
        ours = [Creation("/c/a", b"1"), Creation("/c/b", b"2")]
        with pytest.raises(VersionConflict):
            two.commit("/c", 1, ours)
        with pytest.raises(VersionConflict):
            two.commit("/no/such", 0, ours)
        with pytest.raises(NodeConflict):
            two.commit("/c", 0, [*ours, Creation("/c/theirs", b"3")])
        with pytest.raises(NodeConflict):
            two.commit("/c", 0, [*ours, Deletion("/c/gone")])
        assert two.children("/c") == ["theirs"]
        two.commit("/c", 0, [Deletion("/c/theirs"), *ours, Creation("/c/theirs", b"3")])
        assert two.get("/c/theirs") == (b"3", 0, True)
        assert one.get("/c/a") == (b"1", 0, False)
        lasting = Creation("/c/lasting", b"4", is_ephemeral=False)
        with pytest.raises(VersionConflict):
            two.commit("/c", 1, [lasting], b"changed")
        with pytest.raises(NodeConflict):
            two.commit("/c", 0, [lasting, *ours], b"changed")
        assert (one.get("/c"), one.exists("/c/lasting")) == ((b"state", 0, False), False)
        two.commit("/c", 0, [lasting], b"changed")
        assert one.get("/c") == (b"changed", 1, False)
        two.close()
        wait_until(lambda: one.children("/c") == ["lasting"], "the session's nodes are gone")

    # --- what is built on it ---------------------------------------------------------------------

    def test_cluster_passes_over_garbage(self, one: Registry, two: Registry) -> None:
        """Z9."""
        one.create_ephemeral(paths.broker_id_path(10), paths.encode_broker("10.0.0.1", 9092, 7))
        one.create_ephemeral(paths.broker_id_path(2), paths.encode_broker("b2", 9093, 8))
        one.create(paths.broker_id_path(3), b"\xff garbage")
        one.create(f"{paths.BROKER_IDS}/x", paths.encode_broker("bx", 1, 8))
        one.create_ephemeral(paths.topic_broker_path("clicks", 10), b"1")
        one.create_ephemeral(paths.topic_broker_path("clicks", 2), b"2")
        one.create(paths.topic_broker_path("clicks", 3), b"many")
        one.create(paths.topic_path("empty"))
        assert cluster.live_brokers(two) == {2: ("b2", 9093), 10: ("10.0.0.1", 9092)}
        assert list(cluster.live_brokers(two)) == [2, 10]
        assert cluster.topics(two) == ["clicks", "empty"]
        assert cluster.partitions_of(two, "clicks") == [(2, 0), (2, 1), (10, 0)]
        assert cluster.partitions_of(two, "empty") == []
        assert cluster.partitions_of(two, "unknown") == []

    def test_processes_are_expected_and_alive(
        self, world: World, one: Registry, two: Registry
    ) -> None:
        record = processes.ProcessRecord("live", "broker-1", "broker", "h:1", "h:2", 77)
        handle = processes.register_process(one, record)
        assert handle.wait(60)
        expect_process(two, "offline", "loader", "loader")
        assert processes.alive(two) == [record]
        expected = {found.name: found.kind for found in processes.expected(two)}
        assert expected == {"broker-1": "broker", "loader": "loader"}
        world.expire(one)
        wait_until(lambda: processes.alive(two) == [record], "registered again")
        assert not processes.read_record(two, "live", "broker-1").said_goodbye
        # A process that is named, or lives, stays.
        assert processes.forget_others(two, {"loader"}) == []
        handle.close()
        assert processes.alive(two) == []
        assert [(found.said_goodbye, found.has_finished) for found in processes.expected(two)] == [
            (True, False),
            (False, False),
        ]
        expect_process(two, "live", "wan-link", "proxy")
        assert processes.forget_others(two, {"loader", "broker-1"}) == ["wan-link"]
        processes.forget_process(two, "live", "broker-1")
        assert [found.name for found in processes.expected(two)] == ["loader"]

    def test_a_restarted_process_waits_for_its_last_run_to_expire(
        self, one: Registry, two: Registry
    ) -> None:
        record = processes.ProcessRecord("live", "audit", "audit", pid=1)
        first = processes.register_process(one, record)
        assert first.wait(60)
        successor = processes.ProcessRecord("live", "audit", "audit", pid=2)
        second = processes.register_process(two, successor)
        assert not second.wait(0.1)
        first.close()
        assert second.wait(60)
        assert processes.alive(one) == [successor]
        assert not processes.read_record(one, "live", "audit").said_goodbye
        second.close(has_finished=True)
        assert processes.read_record(two, "live", "audit").has_finished

    def test_a_process_that_ends_by_a_failure_says_no_goodbye(self, one: Registry) -> None:
        record = processes.ProcessRecord("live", "mirror-1", "mirror", pid=1)
        made = processes.register_process(one, record)
        assert made.wait(60)
        made.close(says_goodbye=False)
        assert processes.alive(one) == []
        assert not processes.read_record(one, "live", "mirror-1").said_goodbye

    def test_a_bug_in_registering_a_process_again_is_no_end_of_it(
        self, world: World, one: Registry, two: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kafka2011.runtime.workers.RESTART_FIRST_S", 0.001)
        record = processes.ProcessRecord("live", "audit", "audit", pid=1)
        made = processes.register_process(one, record)
        assert made.wait(60)
        bugs: list[Exception] = [ZeroDivisionError()]
        create = one.create_ephemeral

        def fails_once(path: str, value: bytes | None) -> None:
            if bugs:
                raise bugs.pop()
            create(path, value)

        monkeypatch.setattr(one, "create_ephemeral", fails_once)
        world.expire(one)
        wait_until(lambda: not bugs and processes.alive(two) == [record], "registered again")
        made.close()

    def test_many_threads_share_one_registry(self, one: Registry) -> None:
        def work(number: int) -> None:
            for count in range(20):
                one.put(f"/threads/{number}", str(count).encode())

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert [one.get(f"/threads/{number}") for number in range(8)] == [(b"19", 19, False)] * 8
