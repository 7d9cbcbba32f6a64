import re

import pytest

from kafka2011.services.proxy.config import parse_routes


def test_routes_with_and_without_names() -> None:
    routes = parse_routes("127.0.0.1:0>a:1|b:2, wan=0.0.0.0:9092>live:9092")
    assert [route.name for route in routes] == ["route-0", "wan"]
    assert routes[0].targets == (("a", 1), ("b", 2))
    assert routes[1].listen == ("0.0.0.0", 9092)


@pytest.mark.parametrize(
    "text",
    ["", "a:1", "a:1>", "a:1>b", "=a:1>b:2", "x=a:1>b:2,x=a:2>b:2", "a:99999>b:2", "a:1>b:2|"],
)
def test_bad_routes_are_refused(text) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_routes(text)


@pytest.mark.parametrize("host", ["a..b", ".b", "x" * 64, "ü" * 60], ids=len)
def test_a_host_that_no_name_can_be_is_refused_and_named(host: str) -> None:
    for text in (f"{host}:1>b:2", f"a:1>b:2|{host}:3"):
        with pytest.raises(ValueError, match=f"{re.escape(repr(host))} cannot be a host's name"):
            parse_routes(text)


@pytest.mark.parametrize("host", ["live", "x" * 63 + ".b.", "bücher.example", "::1", "fe80::1%lo"])
def test_any_name_or_address_is_a_host(host: str) -> None:
    assert parse_routes(f"a:1>{host}:2")[0].targets == ((host, 2),)
