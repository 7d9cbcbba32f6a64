# ruff: noqa: E501 (a table of lines)
"""Which lines of an access log are readable, and what is read of them: a table of lines."""

import hashlib
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka2011.events.codec import decode, encode
from kafka2011.events.peek import peek
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.frontend.access_log import (
    FIELD_BYTES_MAX,
    UNREADABLE,
    LineEncoder,
    LineParser,
)
from kafka2011.services.frontend.lines import Line, LongLine
from tests import ROOT

T = b"[17/May/2015:10:05:03 +0000]"
T_MS = 1431857103000
BASE = {
    "host": "h",
    "ident": None,
    "user": None,
    "time": "17/May/2015:10:05:03 +0000",
    "event_time": T_MS,
    "method": "GET",
    "path": "/a?b=c",
    "protocol": "HTTP/1.1",
    "status": 200,
    "bytes": 5,
    "referer": None,
    "agent": None,
}
GET = b'"GET /a?b=c HTTP/1.1"'
HEAD = b"h - - " + T + b" "

# line -> what differs from BASE, or None when it is unreadable
LINES: list[tuple[bytes, dict[str, Any] | None]] = [
    # the formats
    (HEAD + GET + b" 200 5", {}),
    (HEAD + GET + b' 200 5 "-" "-"', {}),
    (
        HEAD + GET + b' 200 5 "http://r/" "Moz/5 (X; Y)"',
        {"referer": "http://r/", "agent": "Moz/5 (X; Y)"},
    ),
    (HEAD + GET + b' 200 5 "" ""', {"referer": "", "agent": ""}),
    (b"::1 id user " + T + b" " + GET + b" 200 5", {"host": "::1", "ident": "id", "user": "user"}),
    (HEAD + GET + b" 200 -", {"bytes": None}),
    (HEAD + GET + b" 200 0", {"bytes": 0}),
    (HEAD + GET + b" 404 9223372036854775807", {"status": 404, "bytes": 2**63 - 1}),
    (HEAD + GET + b" 200 9223372036854775808", {"bytes": None}),
    # the last field without its closing quote
    (HEAD + GET + b' 200 5 "http://r/" "Moz (cut', {"referer": "http://r/", "agent": "Moz (cut"}),
    (HEAD + GET + b' 200 5 "http://r/" "', {"referer": "http://r/", "agent": ""}),
    (HEAD + GET + b' 200 5 "http://r', {"referer": "http://r"}),
    (HEAD + GET + b' 200 5 "http://r/ "Moz"', {"referer": 'http://r/ "Moz'}),
    # fields missing behind the status
    (HEAD + GET + b" 200", {"bytes": None}),
    (HEAD + GET + b" 200 ", {"bytes": None}),
    (HEAD + GET + b' 200 "r" "a"', {"bytes": None, "referer": "r", "agent": "a"}),
    (HEAD + GET + b' 200 5 "r"', {"referer": "r"}),
    # more behind the agent
    (HEAD + GET + b' 200 5 "r" "a" 1234 "cookie"', {"referer": "r", "agent": "a"}),
    (HEAD + GET + b" 200 5 0.003", {}),
    (HEAD + GET + b" 200 12x", {"bytes": None}),
    # requests that are not three words
    (
        HEAD + b'"-" 408 -',
        {"method": None, "path": "-", "protocol": None, "status": 408, "bytes": None},
    ),
    (HEAD + b'"" 400 0', {"method": None, "path": "", "protocol": None, "status": 400, "bytes": 0}),
    (HEAD + b'"GET /a" 200 5', {"method": None, "path": "GET /a", "protocol": None}),
    (
        HEAD + b'"GET /a b HTTP/1.1" 200 5',
        {"method": None, "path": "GET /a b HTTP/1.1", "protocol": None},
    ),
    (
        HEAD + b'"\\x16\\x03\\x01" 400 5',
        {"method": None, "path": "\\x16\\x03\\x01", "protocol": None, "status": 400},
    ),
    (HEAD + b'"GET  /a?b=c\tHTTP/1.1" 200 5', {}),
    (HEAD + b'" GET /a?b=c HTTP/1.1 " 200 5', {}),
    # quotes and backslashes
    (HEAD + b'"GET /\\"q\\" HTTP/1.1" 200 5', {"path": '/\\"q\\"'}),
    (
        HEAD + b'"GET /\\" 404 7 HTTP/1.1" 200 5',
        {"method": None, "path": 'GET /\\" 404 7 HTTP/1.1', "protocol": None},
    ),
    (HEAD + b'"GET /a"b HTTP/1.1" 200 5', {"path": '/a"b'}),
    (HEAD + b'"GET /\\\\ HTTP/1.1" 200 5', {"path": "/\\\\"}),
    (HEAD + GET + b' 200 5 "r" "a \\"b\\" c"', {"referer": "r", "agent": 'a \\"b\\" c'}),
    (HEAD + GET + b' 200 5 "r" "a "b" c"', {"referer": "r", "agent": 'a "b" c'}),
    (HEAD + GET + b' 200 5 "r"x" "a"', {"referer": 'r"x', "agent": "a"}),
    # names
    (b"h - John Q Public " + T + b" " + GET + b" 200 5", {"user": "John Q Public"}),
    (b"h - a[b] " + T + b" " + GET + b" 200 5", {"user": "a[b]"}),
    (b"h " + T + b" " + GET + b" 200 5", {}),
    (b"h id " + T + b" " + GET + b" 200 5", {"ident": "id"}),
    (b"  h - - " + T + b" " + GET + b" 200 5", {}),
    (b"h\t-\t-\t" + T + b"\t" + GET + b"\t200\t5", {}),
    (
        b"v.example:80 192.0.2.1 - - " + T + b" " + GET + b" 200 5",
        {"host": "v.example:80", "ident": "192.0.2.1", "user": "- -"},
    ),
    # times
    (
        b"h - - [17/May/2015:12:05:03 +0200] " + GET + b" 200 5",
        {"time": "17/May/2015:12:05:03 +0200"},
    ),
    (
        b"h - - [16/May/2015:23:35:03 -1030] " + GET + b" 200 5",
        {"time": "16/May/2015:23:35:03 -1030"},
    ),
    (
        b"h - - [01/Jan/1970:00:00:00 +0000] " + GET + b" 200 5",
        {"time": "01/Jan/1970:00:00:00 +0000", "event_time": 0},
    ),
    (
        b"h - - [31/Dec/1969:23:59:59 +0000] " + GET + b" 200 5",
        {"time": "31/Dec/1969:23:59:59 +0000", "event_time": -1000},
    ),
    (
        b"h - - [30/Jun/2015:23:59:60 +0000] " + GET + b" 200 5",
        {"time": "30/Jun/2015:23:59:60 +0000", "event_time": 1435708800000},
    ),
    (
        b"h - - [29/Feb/2012:00:00:00 +0000] " + GET + b" 200 5",
        {"time": "29/Feb/2012:00:00:00 +0000", "event_time": 1330473600000},
    ),
    (b"h - - [29/Feb/2015:00:00:00 +0000] " + GET + b" 200 5", None),
    (b"h - - [31/Jun/2015:00:00:00 +0000] " + GET + b" 200 5", None),
    (b"h - - [17/Mai/2015:10:05:03 +0000] " + GET + b" 200 5", None),
    (b"h - - [17/May/2015:24:00:00 +0000] " + GET + b" 200 5", None),
    (b"h - - [17/May/2015:10:60:00 +0000] " + GET + b" 200 5", None),
    (b"h - - [17/May/2015:10:05:61 +0000] " + GET + b" 200 5", None),
    (b"h - - [17/May/2015:10:05:03 +2400] " + GET + b" 200 5", None),
    (b"h - - [17/May/2015:10:05:03 +0060] " + GET + b" 200 5", None),
    (b"h - - [17/May/2015:10:05:03] " + GET + b" 200 5", None),
    (b"h - - [00/May/2015:10:05:03 +0000] " + GET + b" 200 5", None),
    (b"h - - [17/May/0000:10:05:03 +0000] " + GET + b" 200 5", None),
    (b"h - - 17/May/2015:10:05:03 +0000 " + GET + b" 200 5", None),
    # not UTF-8, and other characters
    (HEAD + b'"GET /\xff\xfe HTTP/1.1" 200 5', {"path": "/\\xff\\xfe"}),
    (HEAD + b'"GET /\xed\xa0\x80 HTTP/1.1" 200 5', {"path": "/\\xed\\xa0\\x80"}),
    (HEAD + b'"GET /\xc3" 200 5', {"method": None, "path": "GET /\\xc3", "protocol": None}),
    (HEAD + '"GET /café HTTP/1.1" 200 5'.encode(), {"path": "/café"}),
    (HEAD + b'"GET /a\x00b HTTP/1.1" 200 5', {"path": "/a\x00b"}),
    (HEAD + b'"GET /a\rb HTTP/1.1" 200 5', {"path": "/a\rb"}),
    (HEAD + GET + b' 200 5 "-" "\xe9\xe8"', {"agent": "\\xe9\\xe8"}),
    # unreadable
    (b"", None),
    (b" ", None),
    (b"-", None),
    (b"\x00\x01\x02\xff", None),
    (b"not a log line at all", None),
    (T + b" " + GET + b" 200 5", None),
    (b" " + T + b" " + GET + b" 200 5", None),
    (HEAD + GET, None),
    (HEAD + GET + b" - 5", None),
    (HEAD + GET + b" 20 5", None),
    (HEAD + GET + b" 2000 5", None),
    (HEAD + GET + b" OK 5", None),
    (HEAD + b"GET /a HTTP/1.1 200 5", None),
    (HEAD + b'"GET /a HTTP/1.1 200 5', None),
    (HEAD + b'"GET /a HTTP/1.1"200 5', None),
    (b'h - - [bad] "GET /' + T + b' HTTP/1.1" 200 5', None),
    (HEAD[:20], None),
]

RUN = bytes.fromhex("0123456789abcdef")
NOW = 1_700_000_000_000


def new_encoder() -> LineEncoder:
    return LineEncoder(RUN, "frontend-1", "site", lambda: NOW)


def read(line: bytes) -> dict[str, Any] | None:
    """The fields as a consumer decodes them."""
    topic, time_ms, payload = new_encoder().encode(Line(line, 7, 0))
    schema, record = decode(payload)
    assert time_ms == NOW
    header = record.pop("header")
    assert header == {
        "guid": RUN + bytes(7) + b"\x07",
        "time": NOW,
        "server": "frontend-1",
        "service": "site",
    }
    if topic == UNREADABLE:
        assert record == {
            "line": line[: 64 * 1024],
            "length": len(line),
            "sha256": hashlib.sha256(line).digest(),
            "line_number": 7,
        }
        return None
    assert topic == ACCESS_LOG
    assert schema["name"] == "kafka2011.AccessLogLine"
    # The joined pieces are what the general encoder makes.
    assert encode(ACCESS_LOG, {"header": header, **record}) == payload
    return record


@pytest.mark.parametrize(("line", "differs"), LINES, ids=[repr(line)[2:70] for line, _ in LINES])
def test_line(line: bytes, differs: dict[str, Any] | None) -> None:
    assert read(line) == (None if differs is None else BASE | differs)


def test_there_are_enough_odd_lines() -> None:
    assert len(LINES) >= 40
    assert len({line for line, _ in LINES}) == len(LINES)


@given(line=st.binary(max_size=300))
def test_any_bytes_are_readable_or_not_and_never_raise(line: bytes) -> None:
    read(line)


PIECES = st.sampled_from(
    [
        b"h",
        b" ",
        b"-",
        b'"',
        b"\\",
        T,
        GET,
        b"200",
        b"5",
        b"\t",
        b"\xff",
        b"[",
        b"]",
        b"\x00",
        b"x y",
    ]
)


@given(pieces=st.lists(PIECES, max_size=24))
@example(pieces=[b"h", b" ", T, b" ", b'"', b'"', b" ", b"200"])
def test_any_arrangement_of_pieces_never_raises(pieces: list[bytes]) -> None:
    read(b"".join(pieces))


VISIBLE = st.text(
    st.characters(
        min_codepoint=0x21,
        max_codepoint=0x10FFFF,
        exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"],
        exclude_characters='"\\[]',
    ),
    min_size=1,
    max_size=30,
)


@given(
    host=VISIBLE,
    path=VISIBLE,
    status=st.integers(100, 599),
    size=st.integers(0, 10**15),
    referer=VISIBLE,
    agent=VISIBLE,
)
def test_what_a_server_wrote_is_read_back(  # noqa: PLR0917
    host: str, path: str, status: int, size: int, referer: str, agent: str
) -> None:
    line = f'{host} - - {T.decode()} "GET {path} HTTP/1.1" {status} {size} "{referer}" "{agent}"'
    record = read(line.encode())
    assert record is not None
    assert (record["host"], record["path"], record["status"], record["bytes"]) == (
        host,
        path,
        status,
        size,
    )
    assert record["referer"] == (None if referer == "-" else referer)
    assert record["agent"] == (None if agent == "-" else agent)


def test_regular_and_odd_parsing_agree_where_both_apply() -> None:
    parser = LineParser()
    line = HEAD + GET + b' 200 5 "r" "a"'
    assert parser.parse(line) == parser._parse_odd(line)


@pytest.mark.parametrize(
    "line",
    [
        HEAD + b'"GET /' + b"x" * 2_000_000 + b' HTTP/1.1" 200 5 "r" "a"',
        HEAD + b'"' + b"a " * 1_000_000 + b'" 200 5',
        HEAD + GET + b' 200 5 "r" "' + "é".encode() * 1_000_000,
        b"h - " + b"u" * 2_000_000 + b" " + T + b" " + GET + b" 200 5",
    ],
)
def test_a_readable_line_of_2_mb_fits_a_message(line: bytes) -> None:
    record = read(line)
    assert record is not None
    assert (record["host"], record["status"], record["bytes"]) == ("h", 200, 5)
    cut = [text for text in record.values() if isinstance(text, str) and len(text) > 1000]
    assert cut
    assert all(FIELD_BYTES_MAX - 1 <= len(text.encode()) <= FIELD_BYTES_MAX for text in cut)


@pytest.mark.parametrize(
    "line",
    [
        b'"' * 2_000_000,
        b"\\" * 2_000_000,
        HEAD + b'"' * 1_000_000,
        HEAD + b'"\\' * 500_000,
        HEAD + b'" 20' * 500_000,
        HEAD + GET + b' 200 5 "' + b'" ' * 500_000,
        T * 60_000,
        b"[17/May/2015:10:05:03 +000" * 80_000,
        b" " * 2_000_000 + T,
    ],
)
def test_hostile_lines_take_linear_time(line: bytes) -> None:
    """A backtracking pattern would need hours of processor time; these need milliseconds."""
    before = time.process_time()
    LineParser().parse(line)
    assert time.process_time() - before < 5


def test_a_line_too_long_to_keep_is_unreadable_with_what_the_reader_took_of_it() -> None:
    long_line = LongLine(b"head", 5 * 10**9, bytes(range(32)), 3, 0)
    topic, _, payload = new_encoder().encode(long_line)
    assert topic == UNREADABLE
    record = decode(payload)[1]
    assert (record["line"], record["length"]) == (b"head", 5 * 10**9)
    assert (record["sha256"], record["line_number"]) == (bytes(range(32)), 3)


def test_guid_is_the_same_when_a_line_is_sent_again_and_differs_between_lines() -> None:
    line = HEAD + GET + b" 200 5"
    guids = [peek(new_encoder().encode(Line(line, number, 0))[2]).guid for number in (1, 2, 1)]
    assert guids[0] == guids[2] != guids[1]


# --- against awk and a real log ------------------------------------------------------------------

# Ten thousand real lines, where they have been put beside the project (see its README there).
REAL_LOG = ROOT.parent / "shared" / "data" / "apache_access.log"
AWK = """
{h[$1]++; p[$7]++; b+=$10; e+=($9>=400)} END {printf "%d %d %d %.0f %d", NR, length(h), length(p), b, e}
"""


def awk_figures(file: Path) -> list[int]:
    answer = subprocess.run(["awk", AWK, file], capture_output=True, check=True, text=True)
    return [int(word) for word in answer.stdout.split()]


def our_figures(lines: list[bytes]) -> list[int]:
    records = [record for line in lines if (record := read(line)) is not None]
    return [
        len(records),
        len({record["host"] for record in records}),
        len({record["path"] for record in records}),
        sum(record["bytes"] or 0 for record in records),
        sum(record["status"] >= 400 for record in records),
    ]


@pytest.mark.skipif(shutil.which("awk") is None, reason="no awk on this machine")
def test_regular_lines_give_the_figures_that_awk_gives(tmp_path: Path) -> None:
    lines = [
        b'192.0.2.%d - - [17/May/2015:%02d:05:03 +0000] "GET /p/%d?q=%d HTTP/1.1" %d %d "-" "a b"'
        % (n % 17, n % 24, n % 31, n % 7, 200 if n % 9 else 404, n * 37)
        for n in range(2000)
    ]
    file = tmp_path / "access.log"
    file.write_bytes(b"\n".join(lines) + b"\n")
    assert our_figures(lines) == awk_figures(file)


@pytest.mark.skipif(shutil.which("awk") is None, reason="no awk on this machine")
@pytest.mark.skipif(not REAL_LOG.exists(), reason="the real access log is not beside the project")
def test_a_real_log_gives_the_figures_that_awk_gives() -> None:
    lines = REAL_LOG.read_bytes().splitlines()
    assert our_figures(lines) == awk_figures(REAL_LOG)
