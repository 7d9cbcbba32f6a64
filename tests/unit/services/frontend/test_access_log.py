"""Which lines of an access log are readable, and what is read of them: tables of lines."""

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
from kafka2011.events.topics import ACCESS_LOG
from kafka2011.services.frontend import access_log
from kafka2011.services.frontend.lines import HEAD_BYTES, Line, LongLine
from tests import ROOT

TIME = b"17/May/2015:10:05:03 +0000"
T_MS = 1431857103000
RUN = bytes.fromhex("0123456789abcdef")
NOW = 1_700_000_000_000


def line(
    names: bytes = b"h - -",
    moment: bytes = TIME,
    request: bytes = b"GET /a?b=c HTTP/1.1",
    rest: bytes = b"200 5",
) -> bytes:
    return names + b" [" + moment + b'] "' + request + b'" ' + rest


# What is read of `line()`.
FIELDS = {
    "host": "h",
    "ident": None,
    "user": None,
    "time": TIME.decode(),
    "event_time": T_MS,
    "method": "GET",
    "path": "/a?b=c",
    "protocol": "HTTP/1.1",
    "status": 200,
    "bytes": 5,
    "referer": None,
    "agent": None,
}

NAMES = {
    b"::1 id user": {"host": "::1", "ident": "id", "user": "user"},
    b"h - John Q Public": {"user": "John Q Public"},
    b"h - a[b]": {"user": "a[b]"},
    b"h": {},
    b"h id": {"ident": "id"},
    b"  h - -": {},
    # the virtual host in front, proxies behind the client
    b"v:80 192.0.2.1 - -": {"host": "192.0.2.1"},
    b"www.example.com 2001:db8::1 - John Q": {"host": "2001:db8::1", "user": "John Q"},
    b"v:80 h id user": {"host": "h", "ident": "id", "user": "user"},
    b"192.0.2.1, 10.0.0.1, 10.0.0.2 - user": {"host": "192.0.2.1", "user": "user"},
}
TIMES = {
    b"17/May/2015:12:05:03 +0200": T_MS,
    b"16/May/2015:23:35:03 -1030": T_MS,
    b"01/Jan/1970:00:00:00 +0000": 0,
    b"31/Dec/1969:23:59:59 +0000": -1000,
    b"30/Jun/2015:23:59:60 +0000": 1435708800000,
    b"29/Feb/2012:00:00:00 +0000": 1330473600000,
    b"01/Jan/0001:00:00:00 +0000": -62135596800000,
    b"31/Dec/9999:23:59:59 +0000": 253402300799000,
    b"2015-05-17T12:05:03+02:00": T_MS,
    b"2015-05-17 10:05:03.999": T_MS + 999,
}
PATHS = {
    b"GET  /a?b=c\tHTTP/1.1": "/a?b=c",
    b" GET /a?b=c HTTP/1.1 ": "/a?b=c",
    rb"GET /\"q\" HTTP/1.1": r"/\"q\"",
    b'GET /a"b HTTP/1.1': '/a"b',
    rb"GET /\\ HTTP/1.1": r"/\\",
    b"GET /\xff\xfe HTTP/1.1": r"/\xff\xfe",
    b"GET /\xed\xa0\x80 HTTP/1.1": r"/\xed\xa0\x80",
    "GET /café HTTP/1.1".encode(): "/café",
    b"GET /a\x00b HTTP/1.1": "/a\x00b",
    b"GET /a\rb HTTP/1.1": "/a\rb",
}
# The whole request is the path then.
NOT_THREE_WORDS = {
    b"-": "-",
    b"": "",
    b"GET /a": "GET /a",
    b"GET /a b HTTP/1.1": "GET /a b HTTP/1.1",
    rb"\x16\x03\x01": r"\x16\x03\x01",
    rb"GET /\" 404 7 HTTP/1.1": r"GET /\" 404 7 HTTP/1.1",
    b"GET /\xc3": r"GET /\xc3",
}
# From the status on.
RESTS = {
    b'200 5 "-" "-"': {},
    b'200 5 "http://r/" "Moz/5 (X; Y)"': {"referer": "http://r/", "agent": "Moz/5 (X; Y)"},
    b'200 5 "" ""': {"referer": "", "agent": ""},
    b"200 -": {"bytes": None},
    b"408 -": {"status": 408, "bytes": None},
    b"200 0": {"bytes": 0},
    b"404 9223372036854775807": {"status": 404, "bytes": 2**63 - 1},
    b"200 9223372036854775808": {"bytes": None},
    # the last field without its closing quote
    b'200 5 "http://r/" "Moz (cut': {"referer": "http://r/", "agent": "Moz (cut"},
    b'200 5 "http://r/" "': {"referer": "http://r/", "agent": ""},
    b'200 5 "http://r': {"referer": "http://r"},
    b'200 5 "http://r/ "Moz"': {"referer": 'http://r/ "Moz'},
    # fields missing behind the status, and more behind the agent
    b"200": {"bytes": None},
    b"200 ": {"bytes": None},
    b'200 "r" "a"': {"bytes": None, "referer": "r", "agent": "a"},
    b'200 5 "r"': {"referer": "r"},
    b'200 5 "r" "a" 1234 "cookie"': {"referer": "r", "agent": "a"},
    b"200 5 0.003": {},
    b"200 12x": {"bytes": None},
    # quotes and backslashes, and no UTF-8
    rb'200 5 "r" "a \"b\" c"': {"referer": "r", "agent": r"a \"b\" c"},
    b'200 5 "r" "a "b" c"': {"referer": "r", "agent": 'a "b" c'},
    b'200 5 "r"x" "a"': {"referer": 'r"x', "agent": "a"},
    b'200 5 "-" "\xe9\xe8"': {"agent": r"\xe9\xe8"},
}
NO_TIMES = b"""29/Feb/2015:00:00:00 +0000
31/Jun/2015:00:00:00 +0000
17/Mai/2015:10:05:03 +0000
17/May/2015:24:00:00 +0000
17/May/2015:10:60:00 +0000
17/May/2015:10:05:61 +0000
17/May/2015:10:05:03 +2400
17/May/2015:10:05:03 +0060
17/May/2015:10:05:03
00/May/2015:10:05:03 +0000
17/May/0000:10:05:03 +0000"""
UNREADABLE = [
    *(line(moment=moment) for moment in NO_TIMES.splitlines()),
    line().replace(b"[", b"").replace(b"]", b""),
    b'h - - [bad] "GET /[' + TIME + b'] HTTP/1.1" 200 5',
    *(line(names=b""), line(names=b"").lstrip()),
    *(line(names=names) for names in (b"- - -", b" - -", b"- - user", b"-, 10.0.0.1 - -")),
    *(line(names=names) for names in (b"v:80 - - -", b"-")),
    *(line(rest=rest) for rest in (b"", b"- 5", b"20 5", b"2000 5", b"OK 5")),
    *(line().replace(b'"', b""), line().replace(b'" ', b" "), line().replace(b'" ', b'"')),
    *(b"", b" ", b"-", b"\x00\x01\x02\xff", b"not a log line at all", line()[:20]),
    line().removesuffix(b" 200 5"),
]
LINES: dict[bytes, dict[str, Any] | None] = {
    line(): {},
    b"h\t-\t-\t[" + TIME + b']\t"GET /a?b=c HTTP/1.1"\t200\t5': {},
    **{line(names=names): fields for names, fields in NAMES.items()},
    **{
        line(moment=moment): {"time": moment.decode(), "event_time": time_ms}
        for moment, time_ms in TIMES.items()
    },
    **{line(request=request): {"path": path} for request, path in PATHS.items()},
    **{
        line(request=request): {"method": None, "path": path, "protocol": None}
        for request, path in NOT_THREE_WORDS.items()
    },
    **{line(rest=rest): fields for rest, fields in RESTS.items()},
    **dict.fromkeys(UNREADABLE),
}


def new_encoder() -> access_log.LineEncoder:
    return access_log.LineEncoder(RUN, "frontend-1", "site", lambda: NOW)


def read(data: bytes) -> dict[str, Any] | None:
    """The fields of a line as a consumer decodes them; None for an unreadable one."""
    number = len(data)  # in its file: any will do
    topic, time_ms, payload = new_encoder().encode(Line(data, number, 0))
    schema, record = decode(payload)
    assert time_ms == NOW
    header = record.pop("header")
    # The same when the line is sent again, another one for another line.
    guid = RUN + number.to_bytes(8, "big")
    assert header == {"guid": guid, "time": NOW, "server": "frontend-1", "service": "site"}
    if topic == access_log.UNREADABLE:
        assert record == {
            "line": data[:HEAD_BYTES],
            "length": len(data),
            "sha256": hashlib.sha256(data).digest(),
            "line_number": number,
        }
        return None
    assert topic == ACCESS_LOG
    assert schema["name"] == "kafka2011.AccessLogLine"
    # The joined pieces are what the general encoder makes.
    assert encode(ACCESS_LOG, {"header": header, **record}) == payload
    return record


@pytest.mark.parametrize(
    ("data", "differs"), LINES.items(), ids=[repr(data)[2:70] for data in LINES]
)
def test_line(data: bytes, differs: dict[str, Any] | None) -> None:
    assert read(data) == (None if differs is None else FIELDS | differs)


PIECES = [b"h", b" ", b"-", b'"', b"\\", b"[" + TIME + b"]", b'"GET /a?b=c HTTP/1.1"', b"200"]
PIECES += [b"5", b"\t", b"\xff", b"[", b"]", b"\x00", b"x y"]


@given(st.binary(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join))
@example(line(request=b"", rest=b"200"))
def test_any_bytes_are_readable_or_not_and_never_raise(data: bytes) -> None:
    read(data)


VISIBLE = st.characters(
    exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"], exclude_characters='"\\[]'
)
WORD = st.text(VISIBLE, min_size=1, max_size=30)
WRITTEN = st.fixed_dictionaries(
    dict.fromkeys(("path", "referer", "agent"), WORD)
    | {
        "host": WORD.filter(lambda word: word != "-"),
        "status": st.integers(100, 599),
        "bytes": st.integers(0, 10**15),
    }
)


@given(WRITTEN)
def test_what_a_server_wrote_is_read_back(written: dict[str, Any]) -> None:
    names = f"{written['host']} - -".encode()
    request = f"GET {written['path']} HTTP/1.1".encode()
    rest = '{status} {bytes} "{referer}" "{agent}"'.format(**written).encode()
    absent = {name: None for name in ("referer", "agent") if written[name] == "-"}
    assert read(line(names, TIME, request, rest)) == FIELDS | written | absent


def test_regular_and_odd_parsing_agree_where_both_apply() -> None:
    parser = access_log.LineParser()
    data = line(rest=b'200 5 "r" "a"')
    assert parser.parse(data) == parser._parse_odd(data)


@pytest.mark.parametrize(
    "data",
    [
        line(request=b"GET /" + b"x" * 2_000_000 + b" HTTP/1.1", rest=b'200 5 "r" "a"'),
        line(request=b"a " * 1_000_000),
        line(rest=b'200 5 "r" "' + "é".encode() * 1_000_000),
        line(names=b"h - " + b"u" * 2_000_000),
    ],
    ids=["path", "request", "agent", "user"],
)
def test_a_readable_line_of_2_mb_fits_a_message(data: bytes) -> None:
    record = read(data)
    assert record is not None
    assert (record["host"], record["status"], record["bytes"]) == ("h", 200, 5)
    cut = [text for text in record.values() if isinstance(text, str) and len(text) > 1000]
    assert cut
    size_max = access_log.FIELD_BYTES_MAX
    assert all(size_max - 1 <= len(text.encode()) <= size_max for text in cut)


HEAD = line().partition(b'"')[0]


@pytest.mark.parametrize(
    "data",
    [
        b'"' * 2_000_000,
        b"\\" * 2_000_000,
        HEAD + b'"' * 1_000_000,
        HEAD + b'"\\' * 500_000,
        HEAD + b'" 20' * 500_000,
        line(rest=b'200 5 "' + b'" ' * 500_000),
        (b"[" + TIME + b"]") * 60_000,
        (b"[" + TIME[:-1]) * 80_000,
        b" " * 2_000_000 + b"[" + TIME + b"]",
    ],
    ids=range(9),
)
def test_hostile_lines_take_linear_time(data: bytes) -> None:
    """A backtracking pattern would need hours of processor time; these need milliseconds."""
    before = time.process_time()
    access_log.LineParser().parse(data)
    assert time.process_time() - before < 5


def test_a_line_too_long_to_keep_is_unreadable_with_what_the_reader_took_of_it() -> None:
    long_line = LongLine(b"head", 5 * 10**9, bytes(range(32)), 3, 0)
    topic, _, payload = new_encoder().encode(long_line)
    assert topic == access_log.UNREADABLE
    assert decode(payload)[1].items() >= {
        ("line", b"head"),
        ("length", 5 * 10**9),
        ("sha256", bytes(range(32))),
        ("line_number", 3),
    }


# --- against awk ---------------------------------------------------------------------------------

# Ten thousand real lines, where they have been put beside the project (see its README there).
REAL_LOG = ROOT.parent / "shared" / "data" / "apache_access.log"
MADE_LINES = b"".join(
    b'192.0.2.%d - - [17/May/2015:%02d:05:03 +0000] "GET /p/%d?q=%d HTTP/1.1" %d %d "-" "a b"\n'
    % (n % 17, n % 24, n % 31, n % 7, 200 if n % 9 else 404, n * 37)
    for n in range(2000)
)
AWK = """
{h[$1]++; p[$7]++; b+=$10; e+=($9>=400)} END {printf "%d %d %d %.0f %d", NR, length(h), length(p), b, e}
"""  # noqa: E501


@pytest.mark.skipif(shutil.which("awk") is None, reason="no awk on this machine")
@pytest.mark.parametrize("is_real", [False, True], ids=["made", "real"])
def test_regular_lines_give_the_figures_that_awk_gives(tmp_path: Path, is_real: bool) -> None:
    if is_real and not REAL_LOG.exists():
        pytest.skip("the real access log is not beside the project")
    file = REAL_LOG if is_real else tmp_path / "access.log"
    if not is_real:
        file.write_bytes(MADE_LINES)
    answer = subprocess.run(["awk", AWK, file], capture_output=True, check=True, text=True)
    found = [record for data in file.read_bytes().splitlines() if (record := read(data))]
    assert [int(word) for word in answer.stdout.split()] == [
        len(found),
        len({record["host"] for record in found}),
        len({record["path"] for record in found}),
        sum(record["bytes"] or 0 for record in found),
        sum(record["status"] >= 400 for record in found),
    ]
