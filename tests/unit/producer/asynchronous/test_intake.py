"""Both twins of the asynchronous producer's per-message steps, against the same claims."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.producer.asynchronous import _intake_pure

try:
    from kafka2011.producer.asynchronous import _intake_compiled
except ImportError:
    TWINS = [_intake_pure]
else:
    TWINS = [_intake_pure, _intake_compiled]

TOPICS = st.sampled_from(["a", "b", "".join(["lo", "ng"])])
PARTITIONS = st.sampled_from([-1, 0, 1, 70_000])
KEYS = st.none() | st.integers()
MESSAGES = st.lists(st.tuples(TOPICS, PARTITIONS, st.binary(max_size=3), KEYS))


Events = list[tuple[Any, ...]]

twins = pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.rpartition("_")[2])


@twins
@given(messages=MESSAGES)
def test_a_group_is_what_a_filter_finds(twin, messages) -> None:
    grouped = twin.group(messages)
    assert list(grouped) == list(dict.fromkeys((topic, part) for topic, part, _, _ in messages))
    for place, payloads in grouped.items():
        assert payloads == [payload for t, p, payload, _ in messages if (t, p) == place]


@twins
@given(
    size=st.integers(1, 5),
    batch_size=st.integers(1, 5),
    steps=st.lists(st.sampled_from(["put_one", "offer", "take", "waiting"]), max_size=40),
    closes_at=st.none() | st.integers(0, 40),
)
def test_it_is_a_bounded_list(twin, size, batch_size, steps, closes_at) -> None:
    batches: list[int] = []
    full: Events = []
    expected_batches: list[int] = []
    expected_full: Events = []
    model: Events = []
    intake = twin.Intake(
        size, batch_size, lambda: batches.append(len(intake)), lambda *event: full.append(event)
    )
    for number, step in enumerate(steps):
        if number == closes_at:
            intake.close()
            size = 0
        event = ("topic", -1, b"%d" % number, number)
        match step:
            case "put_one":
                intake.put_one(*event)
                if len(model) >= size:
                    expected_full.append(event)
                else:
                    model.append(event)
                    if len(model) == batch_size:
                        expected_batches.append(batch_size)
            case "offer":
                assert intake.offer(event) is (len(model) < size)
                if len(model) < size:
                    model.append(event)
            case "take":
                assert intake.take() == model
                model = []
            case "waiting":
                assert intake.waiting() == model
        assert len(intake) == len(model)
    assert (full, batches) == (expected_full, expected_batches)


@twins
def test_many_threads_lose_nothing_and_keep_the_bound(twin) -> None:
    names, count = (b"a", b"b", b"c"), 20_000
    refused: deque[bytes] = deque()  # append is atomic
    intake = twin.Intake(100, 50, lambda: None, lambda *event: refused.append(event[2]))

    def put(name: bytes) -> None:
        for number in range(count):
            intake.put_one("topic", -1, b"%s %d" % (name, number), None)

    taken: list[bytes] = []
    with ThreadPoolExecutor(len(names)) as pool:
        writers = [pool.submit(put, name) for name in names]
        while not all(writer.done() for writer in writers) or len(intake):
            some = intake.take()
            assert len(some) <= 100
            taken += [payload for _, _, payload, _ in some]
    assert len(taken) + len(refused) == len(names) * count
    assert set(taken) | set(refused) == {b"%s %d" % (n, i) for n in names for i in range(count)}
    for name in names:
        numbers = [int(text[2:]) for text in taken if text.startswith(name)]
        assert numbers == sorted(numbers)
