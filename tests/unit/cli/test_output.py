"""What commands print: nothing that a terminal obeys, times and durations that can be read."""

import datetime
import json
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.cli import output
from kafka2011.cli.offsets import parse_target
from kafka2011.consumer.tools.group_offsets import Target


@given(st.binary(max_size=100))
def test_no_payload_moves_a_terminal(payload: bytes) -> None:
    text = output.printable(payload)
    text.encode()
    assert all(c >= " " and not "\x7f" <= c < "\xa0" for c in text if c not in "\n\t")


def test_one_is_no_plural_and_thousands_have_commas() -> None:
    found = [output.number_of(count, "message") for count in (0, 1, 3000)]
    assert found == ["0 messages", "1 message", "3,000 messages"]


def test_readable_text_stays_as_it_is() -> None:
    assert output.printable("Grüße\t→ \n".encode()) == "Grüße\t→ \n"
    assert output.printable(b"\x1b[2J\xff\r") == "\\x1b[2J\\xff\\x0d"


def test_an_error_and_a_name_are_one_line_whatever_is_in_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.complain("one\ntwo\x1b[31m")
    output.print_lines(["plain", "two\nlines\x1b[0m", "tab\there"])
    assert capsys.readouterr() == (
        "plain\ntwo\\x0alines\\x1b[0m\ntab\\x09here\n",
        "kafka2011: one two\\x1b[31m\n",
    )


def test_half_a_character_is_an_escape(capfd: pytest.CaptureFixture[str]) -> None:
    """JSON in a node of ZooKeeper may have it; no output takes it."""
    output.print_table(("kind",), [("a\ud800b",)])
    output.print_lines(["a\udfffb"])
    sys.stdout.flush()
    assert capfd.readouterr().out.split() == ["kind", "a\\ud800b", "a\\udfffb"]


def test_json_has_no_word_that_other_readers_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"rates": [1.5, float("inf"), float("nan")]})
    text = capsys.readouterr().out
    assert json.loads(text, parse_constant=pytest.fail) == {"rates": [1.5, "Infinity", "NaN"]}


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert output.duration(milliseconds) == text


@given(st.datetimes(datetime.datetime(1971, 1, 1), datetime.datetime(2200, 1, 1)))
def test_a_time_that_is_shown_can_be_given_back(moment: datetime.datetime) -> None:
    time_ms = int(moment.replace(tzinfo=datetime.UTC).timestamp()) * 1000 + 123
    assert output.parse_time(output.utc(time_ms)) == time_ms


@pytest.mark.parametrize("time_ms", [253_402_300_800_000, -(2**62), 2**63 - 1])
def test_a_time_that_no_calendar_has_is_shown_as_a_number(time_ms: int) -> None:
    assert output.utc(time_ms) == f"{time_ms} ms"


def test_times_without_a_zone_are_utc() -> None:
    midsummer = output.parse_time("2011-06-12T09:30:00")
    assert midsummer == output.parse_time("2011-06-12T11:30:00+02:00")
    with pytest.raises(ValueError, match="is not a time"):
        output.parse_time("yesterday")


def test_where_offsets_can_be_reset_to(refused: Callable[..., str]) -> None:
    assert parse_target("earliest") == Target(end="earliest")
    assert parse_target("0") == Target(offset=0)
    assert parse_target("ms:1307871000000") == parse_target("2011-06-12T09:30:00Z")
    for text in ("", "-1", "soon", "9223372036854775808", "ms:"):
        refused(parse_target, text)


def test_a_row_in_a_pipe_is_one_line_and_holds_no_control(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [("x" * 300, "\x1b[2J[bold]"), ("short", 12345)]
    output.print_table(("a", "b"), rows, numbers=("b",))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "x" * 300 in lines[1]
    assert "\\x1b[2J[bold]" in lines[1]
    assert "12,345" in lines[2]


def test_a_row_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("name", "what"), [("a", "x y" * 9000), ("b", "z" * 20_000)])
    assert [len(line.rstrip()) for line in capsys.readouterr().out.splitlines()] == [
        len("name  what"),
        len("name  ") + 27_000,
        len("name  ") + 20_000,
    ]
