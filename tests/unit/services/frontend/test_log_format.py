"""Formats in the server's own notation, and JSON lines: what is read of a line."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.services.frontend.json_lines import MEMBERS
from kafka2011.services.frontend.log_format import log_format, parser_of
from tests import ROOT
from tests.support.access_lines import known_lines

T_MS = 1431857103000
CLF = "17/May/2015:10:05:03 +0000"
COMMON_APACHE = '%h %l %u %t "%r" %>s %b'
APACHE = COMMON_APACHE + ' "%{Referer}i" "%{User-Agent}i"'
NGINX = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent '
    '"$http_referer" "$http_user_agent"'
)
END = '[$time_local] "$request" $status'
LINE_END = f'[{CLF}] "GET /a?b=c HTTP/1.1" 200'
LINE = f'h - - [{CLF}] "GET /a?b=c HTTP/1.1" 200 5'
FIELDS = {
    "host": b"h", "ident": None, "user": None, "method": b"GET", "path": b"/a?b=c",
    "protocol": b"HTTP/1.1", "status": 200, "size": 5, "referer": None, "agent": None,
    "event_time_ms": T_MS,
}  # fmt: skip
NO_SIZE = {"size": None}
BARE = {"protocol": None, **NO_SIZE}

# Notation, line, what differs from FIELDS (None: unreadable).
WRITTEN: list[tuple[str, str, dict[str, Any] | None]] = [
    (APACHE, rf'{LINE} "r" "a \"b\" c"', {"referer": b"r", "agent": rb"a \"b\" c"}),
    (APACHE, f'{LINE} "r" "a" 17 "more"', {"referer": b"r", "agent": b"a"}),
    (APACHE, f'{LINE} "r" "a cut', {"referer": b"r", "agent": b"a cut"}),
    (APACHE, LINE, None),
    (APACHE, "", None),
    (COMMON_APACHE, LINE.replace("200 5", "408 -"), {"status": 408, **NO_SIZE}),
    (COMMON_APACHE, LINE.replace(" 200 ", " - "), None),
    (COMMON_APACHE, LINE.replace("17/May", "31/Jun"), None),
    (NGINX, f'{LINE} "-" "ä"', {"agent": "ä".encode()}),
    # ten fields and more: in front, between, behind
    (NGINX + ' "$http_x_forwarded_for" $request_time', f'{LINE} "-" "-" "p, q" 0.002', {}),
    (
        r"LogFormat \"no\" x".replace(r"\"no\"", '"' + r"%v:%p %h %l %u %t %D \"%r\" %>s %O" + '"'),
        f'v:80 h - joe [{CLF}] 1234 "GET /a?b=c HTTP/1.1" 200 5',
        {"user": b"joe"},
    ),
    (
        "log_format main escape=default '$remote_addr [$time_iso8601] '\n"
        "  '\"$request_method ${uri}$is_args$args $server_protocol\" $status';",
        'h [2015-05-17T12:05:03+02:00] "GET /a?b=c HTTP/1.1" 200',
        NO_SIZE,
    ),
    # the parts of a time and of a request by themselves
    (
        "%h %{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t %m %U%q %s",
        "h 17/May/2015 10:05:03.123 +0000 GET /a?b=c 200",
        BARE,
    ),
    ("%h %{%FT%T%z}t %m %U %q %s", "h 2015-05-17T10:05:03+0000 GET /a ?b=c 200", BARE),
    (r"%h\t%{msec}t\t%r\t%s", "h\t1431857103000\tGET /a?b=c HTTP/1.1\t200", NO_SIZE),
    (
        "$msec|$remote_addr|$status|$request|$bytes_sent",
        "1431857103.000|h|200|GET /a?b=c|d HTTP/1.1|5",
        {"path": b"/a?b=c|d"},
    ),
    # the client: of two, what the server saw; of several in one, the first
    (
        f"$remote_addr $upstream_addr $upstream_status {END}",
        f"h a:80, b:80 502, 200 {LINE_END}",
        NO_SIZE,
    ),
    (f"$remote_addr $upstream_addr {END}", f"h a:80, b:80 : unix:/c {LINE_END}", NO_SIZE),
    (f"$remote_addr $upstream_addr {END}", f"h - {LINE_END}", NO_SIZE),
    (f"$remote_addr $upstream_addr : $upstream_status {END}", f"h a:80 : 200 {LINE_END}", NO_SIZE),
    (f"$remote_addr [$upstream_addr] {END}", f"h [a:80, b:80] {LINE_END}", NO_SIZE),
    (f"$http_x_forwarded_for $remote_addr {END}", f"a, b h {LINE_END}", NO_SIZE),
    (f"$http_x_forwarded_for {END}", f"h, b {LINE_END}", NO_SIZE),
    ('%{X-Forwarded-For}i %t "%r" %s 100%%', f"h {LINE_END} 100%", NO_SIZE),
    ('%h %{usec}t "%r" %s', 'h 1431857103000999 "GET /a?b=c HTTP/1.1" 200', NO_SIZE),
    ("json", LINE, None),
    ("auto", "[" * 100_000, None),
    ("auto", '{"a":' * 100_000, None),
]
# With nginx's variables, of Caddy, of Traefik, and with Elastic's names.
WRITTEN += [
    ("auto", json.dumps(members), differs)
    for members, differs in (
        (
            {"remote_addr": "h", "time_local": CLF, "request": "GET /a?b=c HTTP/1.1"}
            | {"status": "200", "body_bytes_sent": "5", "http_referer": "", "http_user_agent": "-"},
            {},
        ),
        (
            {"ts": 1431857103.0004, "size": 5, "status": 200}
            | {"request": {"remote_ip": "h", "proto": "HTTP/1.1", "method": "GET", "uri": "/a?b=c"}
            | {"headers": {"User-Agent": ["x"]}}},
            {"agent": b"x"},
        ),
        (
            {"ClientHost": "h", "StartUTC": "2015-05-17T10:05:03.000456789Z"}
            | {"RequestMethod": "GET", "RequestPath": "/a?b=c", "RequestProtocol": "HTTP/1.1"}
            | {"DownstreamStatus": 200, "DownstreamContentSize": 5, "ClientUsername": "-"},
            {},
        ),
        (
            {"@timestamp": "2015-05-17T10:05:03Z", "source": {"ip": "h"}}
            | {"http": {"request": {"method": "GET"}, "response": {"status_code": 200}}}
            | {"url": {"path": "/a", "query": "b=c"}},
            BARE,
        ),
        *(
            (
                {"ip": "h", "ts": T_MS * 10**more, "status": 200}
                | {"request": "GET /a?b=c HTTP/1.1"},
                NO_SIZE,
            )
            for more in (0, 3, 6)  # Go's zap, for instance, writes nanoseconds
        ),
        ({"remote_addr": "h", "status": 200}, None),
    )
]  # fmt: skip


@pytest.mark.parametrize(("notation", "line", "differs"), WRITTEN)
def test_a_line_in_a_notation(notation: str, line: str, differs: dict[str, Any] | None) -> None:
    found = parser_of(notation).parse(line.encode())
    if differs is None or found is None:
        assert found is differs
        return
    read = found._asdict()
    read.pop("time")
    assert read == FIELDS | differs


@pytest.mark.parametrize("notation", ["auto", "json"])
def test_bytes_of_a_json_line_that_are_not_utf_8_are_escaped_as_in_other_lines(
    notation: str,
) -> None:
    members = b'"remote_addr":"h","time_local":"%s","status":200,"uri":"/"' % CLF.encode()
    line = b'{%s,"http_user_agent":"caf\xe9 \xc3\xa9 \\u00e9","http_referer":"\\ud800"}' % members
    found = parser_of(notation).parse(line)
    assert found is not None
    assert (found.agent, found.referer) == ("caf\\xe9 é é".encode(), rb"\ud800")


NGINX_JSON = (
    '{"remote_addr":"$remote_addr","time_iso8601":"$time_iso8601","request":"$request",'
    '"status":"$status","body_bytes_sent":"$body_bytes_sent","http_referer":"$http_referer",'
    '"http_user_agent":"$http_user_agent","remote_user":"$remote_user"}'
)


@pytest.mark.parametrize("text", [NGINX_JSON, f"log_format mine escape=json '{NGINX_JSON}';"])
@pytest.mark.parametrize(
    "values",
    [
        ("GET /a HTTP/1.1", "10", "", "", ""),
        ("", "", "-", "-", "joe"),
        (r"GET /\"q\" HTTP/1.1", "10", r"https:\/\/a\\b", r"we\"ird\\agent \u00e9 é", r"\ud800"),
        (r"GET /\u0016 HTTP/1.1", "0", "caf\udce9", r"caf\u00e9 " + "\udce9", ""),
        ("-", "-", "x", "y", "z"),
    ],
    ids=["empty", "no request", "escapes", "not UTF-8", "dashes"],
)
def test_nginx_own_notation_of_json_is_read_as_json_lines_are(
    text: str, values: tuple[str, ...]
) -> None:
    """Escapes stayed in the fields, and what is empty was an empty text."""
    request, size, referer, agent, user = values
    line = NGINX_JSON
    for name, value in {
        "$remote_addr": "192.0.2.1",
        "$time_iso8601": "2026-11-29T09:00:00+00:00",
        "$request": request,
        "$status": "200",
        "$body_bytes_sent": size,
        "$http_referer": referer,
        "$http_user_agent": agent,
        "$remote_user": user,
    }.items():
        line = line.replace(f'"{name}"', f'"{value}"')
    written = line.encode("utf-8", "surrogateescape")
    found = parser_of(text).parse(written)
    assert found is not None
    assert found == parser_of("json").parse(written)


@pytest.mark.parametrize(
    ("member", "path"),
    [
        ('"request": ""', b""),
        ('"request": null', b""),
        ('"request": {"uri": ""}', b""),
        ('"request": {"uri": "/"}', b"/"),
        ('"Request": "GET / HTTP/1.1"', b"/"),
        ('"req": "GET / HTTP/1.1"', None),
        ('"method": "GET"', None),
        ('"request": {"line": "GET / HTTP/1.1"}', b""),
        ('"request": "-"', b""),
        ('"request": "-", "path": "/p"', b"/p"),
        ('"request": null, "path": "-", "uri": "/u"', b"/u"),
    ],
)
def test_a_json_line_must_name_its_request_which_may_be_empty(
    member: str, path: bytes | None
) -> None:
    """Where its name was not known every line was a view of no page."""
    line = f'{{"remote_addr": "h", "time_local": "{CLF}", "status": 200, {member}}}'
    found = parser_of("auto").parse(line.encode())
    assert (found.path if found is not None else None) == path


@pytest.mark.parametrize("kind", ["%Q/%d", "%d %s", "%d/%d", "%D %m"])
def test_a_time_that_cannot_be_read_is_no_log_format(kind: str) -> None:
    with pytest.raises(ValueError, match="time"):
        parser_of(f'%h %{{{kind}}}t "%r" %>s')


@pytest.mark.parametrize("notation", ["common", APACHE, NGINX])
def test_a_notation_of_the_combined_format_reads_the_same(notation: str) -> None:
    automatic, parser = parser_of("auto"), parser_of(notation)
    lines = [one.line for one in known_lines(500, seed=2) if one.line.count(b'"') == 6]
    assert len(lines) > 400
    assert [parser.parse(line) for line in lines] == [automatic.parse(line) for line in lines]


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from(LINE.split(" ")), max_size=20).map(lambda w: " ".join(w).encode())
)
def test_any_bytes_are_readable_or_not_and_never_raise(data: bytes) -> None:
    for parser in PARSERS:
        parser.parse(data)
        parser.parse(b"{" + data)


PARSERS = [parser_of(notation) for notation in dict.fromkeys(one[0] for one in WRITTEN)]


@pytest.mark.parametrize(
    ("notation", "reason"),
    [
        ("combine", "'combine' is no log format: give auto, common, combined, json, or"),
        ("", "'' is no log format"),
        ("%h %l %u", "lacks the time"),
        ('%t "%r" %s', "lacks the client's address"),
        ('%h %t "%r"', "lacks the status"),
        ("%h %t %s", "lacks the request"),
        ("$remote_addr$status $time_local $request", "nothing between remote_addr and status"),
        ('LogFormat "%h', "open quote"),
    ],
)
def test_a_notation_that_reads_nothing_is_refused(notation: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refused:
        log_format(notation)
    assert "\n" not in str(refused.value)


def test_a_hostile_line_takes_no_time_to_speak_of() -> None:
    """Its length is bounded where a field may have its own end inside."""
    parser = parser_of("$msec|$remote_addr|$request|$status")
    for line in (b"1|h|" + b"|" * 16_000, b"1|h|" + b"|200" * 1_000_000):
        assert parser.parse(line) is None


def test_the_page_has_the_names_that_a_json_line_may_use() -> None:
    page = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    table = page.partition("### Names in JSON lines")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (`.*`) \|$", table, re.MULTILINE)
    assert {field: re.findall("`(.*?)`", names) for field, names in rows} == {
        field: names.split() for field, names in MEMBERS.items()
    }
