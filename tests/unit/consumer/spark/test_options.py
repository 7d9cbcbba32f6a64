import pytest

from kafka2011.consumer.spark.options import OptionError, parse_options

BASE = {"brokers": "11:127.0.0.1:9092", "topic": "t"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topic": "t"}, "exactly one of zk.connect and brokers"),
        ({"brokers": "11:h:1"}, "exactly one of topic"),
        ({**BASE, "topicsPattern": "x"}, "exactly one of topic"),
        ({"brokers": "11:h:1", "topicsPattern": "x"}, "needs zk.connect"),
        ({**BASE, "startingOffset": "latest"}, "unknown option 'startingoffset'"),
        ({**BASE, "startingOffsets": "middle"}, "startingoffsets='middle'"),
        ({**BASE, "startingOffsets": '{"t": "earliest"}'}, "must have an object of its partit"),
        ({**BASE, "startingOffsets": '{"t": {"11": 5}}'}, "must be broker-partition"),
        ({**BASE, "startingOffsets": '{"t": {"11-0": -5}}'}, "must be an offset"),
        ({**BASE, "startingOffsets": "latest", "startingTimestamp": "5"}, "not both"),
        ({**BASE, "endingOffsets": "latest", "endingTimestamp": "5"}, "not both"),
        ({**BASE, "event.forms": "t:3"}, "must be topic:form, the form one of id, 2011"),
        ({**BASE, "endingOffsets": "[" * 100_000}, "recursion"),
        ({"brokers": "11:h:1", "ranges": '[["t", 11, 0, 5]]'}, "each must be"),
        ({"brokers": "11:h:1", "ranges": "[[7, 11, 0, 5, 9]]"}, "each must be"),
        ({"brokers": "11:h:1", "ranges": '[["t", 11, 0, 5, 4]]'}, "runs backwards"),
        ({**BASE, "fetch.size": "0"}, "at least 1"),
        ({**BASE, "brokers": "h:1"}, "must be id:host:port"),
        ({"zk.connect": "z", "topicsPattern": "("}, "topicspattern"),
    ],
)
def test_bad_options_are_one_line(given: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(given)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_of_options_have_any_case_and_a_pattern_matches_whole_names() -> None:
    found = parse_options(
        {"zk.connect": "z", "TOPICS": "a,b", "StartingOffsets": "LATEST", "failOnDataLoss": "false"}
    )
    assert (found.topics, found.starting, found.fail_on_data_loss) == (("a", "b"), "latest", False)
    assert (found.selects("a"), found.selects("c")) == (True, False)
    found = parse_options({"zk.connect": "z:1", "topicsPattern": "page-.*"})
    assert (found.selects("page-view"), found.selects("home-page-view")) == (True, False)
