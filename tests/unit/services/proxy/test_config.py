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
