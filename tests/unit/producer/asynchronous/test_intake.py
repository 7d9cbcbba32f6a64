"""Both twins of the asynchronous producer's per-message steps, against the same claims."""

import threading
from collections import deque
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.producer.asynchronous import _intake_pure

try:
    from kafka2011.producer.asynchronous import _intake_compiled  # type: ignore[attr-defined, unused-ignore]
except ImportError:
    TWINS = [_intake_pure]
else:
    TWINS = [_intake_pure, _intake_compiled]

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "".join(["lo", "ng"])]),
        st.sampled_from([-1, 0, 1, 70_000]),
        st.binary(max_size=3),
        st.none() | st.integers(),
    )
)


@pytest.fixture(params=TWINS, ids=lambda twin: twin.__name__.rpartition("_")[2])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


@given(messages=MESSAGES)
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.rpartition("_")[2])
def test_a_group_is_what_a_filter_finds(twin: ModuleType, messages: list[Any]) -> None:
    grouped = twin.group(messages)
    assert list(grouped) == list(dict.fromkeys((topic, part) for topic, part, _, _ in messages))
    for place, payloads in grouped.items():
        assert payloads == [payload for t, p, payload, _ in messages if (t, p) == place]


@given(
    size=st.integers(1, 5),
    batch_size=st.integers(1, 5),
    steps=st.lists(st.sampled_from(["put_one", "offer", "take", "waiting"]), max_size=40),
    closes_at=st.none() | st.integers(0, 40),
)
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__.rpartition("_")[2])
def test_it_is_a_bounded_list(
    twin: ModuleType, size: int, batch_size: int, steps: list[str], closes_at: int | None
) -> None:
    batches: list[int] = []
    full: list[tuple[Any, ...]] = []
    expected_batches: list[int] = []
    expected_full: list[tuple[Any, ...]] = []
    intake = twin.Intake(
        size, batch_size, lambda: batches.append(len(intake)), lambda *event: full.append(event)
    )
    model: list[tuple[Any, ...]] = []
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
    assert full == expected_full
    assert batches == expected_batches


def test_many_threads_lose_nothing_and_keep_the_bound(twin: ModuleType) -> None:
    refused: deque[bytes] = deque()  # append is atomic
    intake = twin.Intake(
        100, 50, lambda: None, lambda topic, partition, payload, key: refused.append(payload)
    )
    count = 20_000
    lengths: list[int] = []

    def put(name: bytes) -> None:
        for number in range(count):
            intake.put_one("topic", -1, b"%s %d" % (name, number), None)

    writers = [threading.Thread(target=put, args=(name,)) for name in (b"a", b"b", b"c")]
    for writer in writers:
        writer.start()
    taken: list[bytes] = []
    while any(writer.is_alive() for writer in writers) or len(intake):
        some = intake.take()
        lengths.append(len(some))
        taken += [payload for _, _, payload, _ in some]
    assert max(lengths) <= 100
    assert len(taken) + len(refused) == 3 * count
    assert set(taken) | set(refused) == {
        b"%s %d" % (name, number) for name in (b"a", b"b", b"c") for number in range(count)
    }
    for name in (b"a", b"b", b"c"):
        numbers = [int(text[2:]) for text in taken if text.startswith(name)]
        assert numbers == sorted(numbers)
