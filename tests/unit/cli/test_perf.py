"""The perf tools' rows and dates are those of 0.7; and what consumer-perf has not read."""

import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafka2011.cli.consumer_perf import _Printer, _Receiver, _run_all
from kafka2011.cli.perf import DATE_FORMAT, DateFormat, Rows, per_second
from kafka2011.cli.producer_perf import DETAILED, SUMMARY, brokerinfo, payloads
from kafka2011.consumer.errors import ConsumerTimeout


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_dates_have_a_colon_before_the_milliseconds() -> None:
    assert DateFormat(DATE_FORMAT).text(1_307_871_000_042) == "2011-06-12 09:30:00:042"
    assert DateFormat("dd.MM.yy").text(1_307_871_000_042) == "12.06.11"


@pytest.mark.parametrize("pattern", ["YYYY", "yyyy-MMM", "hh:mm a", "yyyyy"])
def test_letters_that_are_not_known_are_refused(pattern: str, refused: Callable[..., str]) -> None:
    assert "--date-format" in refused(DateFormat, pattern)


def test_headers_are_the_originals() -> None:
    figures = (
        "message.size, batch.size, total.data.sent.in.MB, MB.sec, total.data.sent.in.nMsg, nMsg.sec"
    )
    assert ", ".join(SUMMARY) == f"start.time, end.time, compression, {figures}"
    assert ", ".join(DETAILED) == f"time, compression, thread.id, {figures}"


def test_rows_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    for hides, as_json in ((False, False), (True, False), (False, True)):
        rows = Rows(hides_header=hides, as_json=as_json)
        rows.header(("a", "b"))
        rows.row(("1", "2.00"), {"a": 1, "b": 2.0})
    *text, line = capsys.readouterr().out.splitlines()
    assert text == ["a, b", "1, 2.00", "1, 2.00"]
    assert json.loads(line) == {"a": 1, "b": 2.0}
    assert [per_second(10, elapsed_ms) for elapsed_ms in (2000, 0)] == [5, 0]


def test_numbered_payloads_are_padded_with_x_and_unlike_each_other() -> None:
    payload = payloads("t", 60, False, 100, 10)
    assert payload(1, 3) == b"Topic:t:ThreadID:1:MessageID:0000000113:".ljust(60, b"x")
    assert len({payload(thread, number) for thread in range(3) for number in range(10)}) == 30
    assert {len(payloads("t", 9, True, None, 1)(0, n)) for n in range(300)} <= set(range(1, 10))
    assert payloads("t", 9, False, None, 1)(0, 0) == bytes(9)


@pytest.mark.parametrize("text", ["", "foo", "broker.list=", "zookeeper=x", "zk.connect"])
def test_a_brokerinfo_that_names_no_broker_is_refused(
    text: str, refused: Callable[..., str]
) -> None:
    refused(brokerinfo, text)


def test_what_is_unread_when_nothing_more_comes_is_status_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not where a thread has all that it was asked for."""
    printer = _Printer(Rows(hides_header=True, as_json=False), DateFormat("yyyy"), 1, None)

    def receive(limits: list[int]) -> None:
        def pieces() -> Iterator[tuple[int, int]]:
            yield 3, 300
            raise ConsumerTimeout

        stop = threading.Event()
        receivers = [_Receiver(0, pieces(), limit, stop, printer) for limit in limits]
        _run_all(receivers, printer, lambda: ["t/0-0 was not read"])

    receive([3, 9])
    assert not capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        receive([9, 9])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "kafka2011: t/0-0 was not read\n"
