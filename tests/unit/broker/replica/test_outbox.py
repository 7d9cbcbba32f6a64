"""The order on a link: no byte is left out or sent twice, no mark overtakes what is before it."""

from hypothesis import given
from hypothesis import strategies as st

from kafka2011.broker.replica.outbox import Outbox, Range
from kafka2011.broker.replication.frames import Mark

LOGS = ("t-0", "t-1", "u-0")
CHUNK = 10

acts = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(LOGS), st.integers(1, 40)),
        st.just("mark"),
        st.just("frame"),
        st.just("send"),
    ),
    max_size=60,
)


class Sent:
    """Carries acts out, and checks what comes."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.put = dict.fromkeys(LOGS, 0)
        self.sent = dict.fromkeys(LOGS, 0)
        self.before: dict[int, dict[str, int]] = {}  # mark or frame -> what was put in before it
        self.last = -1
        self.marks: list[int] = []

    def do(self, act: object) -> None:
        if act == "send":
            self.send()
        elif isinstance(act, tuple):
            log, count = act
            self.outbox.put_range(log, self.put[log], self.put[log] + count)
            self.put[log] += count
        else:
            number = len(self.before)
            self.before[number] = dict(self.put)
            if act == "mark":
                self.outbox.put_mark(Mark(number, {}, 0))
            else:
                self.outbox.put(str(number).encode())

    def send(self) -> bool:
        found = self.outbox.next()
        if found is None:
            return False
        if isinstance(found, Range):
            assert found.offset == self.sent[found.partition]
            end = min(found.end, found.offset + CHUNK)
            self.outbox.sent(found.partition, end)
            self.sent[found.partition] = end
            return True
        number = found.number if isinstance(found, Mark) else int(found)
        assert number > self.last
        self.last = number
        assert all(self.sent[log] >= end for log, end in self.before[number].items())
        if isinstance(found, Mark):
            self.marks.append(number)
        return True


@given(acts)
def test_nothing_is_left_out_and_no_mark_overtakes(todo: list[object]) -> None:
    check(todo)


def check(todo: list[object]) -> None:
    sent = Sent()
    for act in todo:
        sent.do(act)
    while sent.send():
        pass
    assert sent.sent == sent.put
    frames = [number for number, act in enumerate(a for a in todo if a in ("mark", "frame"))]
    if frames and [a for a in todo if a in ("mark", "frame")][-1] == "mark":
        assert sent.marks[-1] == frames[-1]


def test_two_marks_wait_at_most_and_the_first_of_them_stays() -> None:
    sent = Sent()
    sent.do(("t-0", 100))
    for _ in range(50):
        sent.do("mark")
        sent.do(("t-0", 1))
        sent.do(("t-1", 1))
    while sent.send():
        pass
    assert sent.marks == [0, 49]


def test_marks_wait_behind_a_frame_as_well() -> None:
    """An acknowledgement of a new plan, or where logs begin, between marks that a slow link has."""
    sent = Sent()
    for act in ("mark", "mark", "frame", "mark", "mark", "send", "mark", ("t-0", 5), "mark"):
        sent.do(act)
    while sent.send():
        pass
    assert sent.marks == [0, 1, 6]
    assert sent.last == 6


def test_logs_take_turns() -> None:
    outbox = Outbox()
    outbox.put_range("t-0", 0, 30)
    outbox.put_range("t-1", 0, 10)
    order = []
    while isinstance(found := outbox.next(), Range):
        order.append((found.partition, found.offset))
        outbox.sent(found.partition, min(found.end, found.offset + CHUNK))
    assert order == [("t-0", 0), ("t-1", 0), ("t-0", 10), ("t-0", 20)]
