from kafka2011.services.proxy.balancing import TargetRing

TARGETS = (("a", 1), ("b", 2), ("c", 3))


def ring() -> TargetRing:
    return TargetRing(TARGETS, retry_min_s=0.1, retry_max_s=1.0)


def first_names(targets: TargetRing, count: int) -> str:
    return "".join(targets.candidates()[0].address[0] for _ in range(count))


def test_targets_take_turns() -> None:
    assert first_names(ring(), 7) == "abcabca"


def test_dead_target_is_passed_over_and_tried_last() -> None:
    targets = ring()
    targets.failed(targets.targets[1], now_s=0)
    assert first_names(targets, 6).count("b") == 0
    assert targets.candidates()[-1].address[0] == "b"
    targets.succeeded(targets.targets[1], is_check=True)
    assert first_names(targets, 6).count("b") == 2
    assert targets.targets[1].connections_total == 0


def test_pause_of_a_dead_target_doubles_to_its_limit() -> None:
    targets = ring()
    pauses = []
    for _ in range(6):
        targets.failed(targets.targets[0], now_s=50)
        pauses.append(round(targets.targets[0].retry_at_s - 50, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    targets.succeeded(targets.targets[0])
    targets.failed(targets.targets[0], now_s=60)
    assert targets.targets[0].retry_at_s == 60.1


def test_all_dead_are_all_tried() -> None:
    targets = ring()
    for target in targets.targets:
        targets.failed(target, now_s=0)
    assert len(targets.candidates()) == 3
