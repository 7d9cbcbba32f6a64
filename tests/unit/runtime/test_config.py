"""Settings: precedence, the error form, and Java's properties files."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.runtime import config
from kafka2011.runtime.config import ConfigError, setting


@dataclass(frozen=True, kw_only=True)
class Sample:
    broker_id: int = setting("brokerid", config.REQUIRED, config.whole(0), "id")
    flush_interval_messages: int = setting("log.flush.interval", 500, config.whole(1), "messages")
    is_registered: bool = setting("enable.zookeeper", True, config.boolean, "register")
    retention_ms: dict[str, int] = setting("topic.retention", {}, config.per_topic(), "per topic")
    threads: int = setting("num.threads", 1, config.whole(1), "one loop", has_effect=False)

    def __post_init__(self) -> None:
        if self.broker_id == 666:
            raise ValueError("brokerid 666 is taken")


def load(
    file: Path | None = None,
    overrides: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
    known: tuple[str, ...] = (),
) -> tuple[Sample, list[str]]:
    return config.load(
        Sample,
        file=file,
        overrides=overrides,
        environment=environment or {},
        known_elsewhere=known,
    )


def test_set_wins_over_environment_wins_over_file_wins_over_default(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("brokerid=1\nlog.flush.interval=10\n")
    environment = {"KAFKA2011_LOG_FLUSH_INTERVAL": "20"}
    assert load(file)[0].flush_interval_messages == 10
    assert load(file, (), environment)[0].flush_interval_messages == 20
    assert load(file, ("log.flush.interval=30",), environment)[0].flush_interval_messages == 30
    assert load(None, ("brokerid=1",))[0].flush_interval_messages == 500


def test_unknown_in_a_file_is_a_warning_since_the_original_ignores_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("brokerid=1\nno.such.name=7\n")
    loaded, warnings = load(file)
    assert loaded.broker_id == 1
    assert warnings == [f"unknown setting 'no.such.name' in {file} is ignored"]


@pytest.mark.parametrize(
    ("overrides", "environment", "text"),
    [
        (("log.flush.intervall=3", "brokerid=1"), {}, "did you mean log.flush.interval"),
        (("brokerid",), {}, "write it as --set name=value"),
        (("brokerid=1",), {"KAFKA2011_LOG_FLUSH": "3"}, "unknown setting"),
        (("brokerid=x",), {}, "brokerid='x' in --set: must be a whole number"),
        (("brokerid=-1",), {}, "must be at least 0"),
        (("brokerid=1", "enable.zookeeper=True"), {}, "exactly true or false"),
        (("brokerid=1", "topic.retention=a:b"), {}, "'a:b'"),
        (("brokerid=1",), {"KAFKA2011_LOG_FLUSH_INTERVAL": "many"}, "in the environment"),
        ((), {}, "brokerid is required"),
        (("brokerid=666",), {}, "brokerid 666 is taken"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    overrides: tuple[str, ...], environment: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(None, overrides, environment)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bad_value_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("brokerid=1 \n")  # a trailing space is kept and breaks the number, as in 0.7
    with pytest.raises(ConfigError, match=r"server\.properties"):
        load(file)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "missing")


def test_names_of_other_processes_are_passed_over_in_the_environment() -> None:
    loaded, warnings = load(
        None, ("brokerid=3",), {"KAFKA2011_GROUPID": "g", "OTHER": "x"}, known=("groupid",)
    )
    assert (loaded.broker_id, warnings) == (3, [])


def test_a_name_without_effect_is_said_once() -> None:
    _, warnings = load(None, ("brokerid=1", "num.threads=8"))
    assert len(warnings) == 1
    assert "no effect" in warnings[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1\r\nb 2", {"a": "1", "b": "2"}),
        ("# c\n! d\n\na=1", {"a": "1"}),
        ("a=1 ", {"a": "1 "}),
        ("a=one\\\n   two", {"a": "onetwo"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u0041\\t", {"a": "A\t"}),
        ("a=x=y", {"a": "x=y"}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert config.parse_properties(text) == expected


@given(st.text())
def test_any_text_is_some_properties_file(text: str) -> None:
    assert isinstance(config.parse_properties(text), dict)


@given(st.dictionaries(st.from_regex(r"[a-z.]{1,20}", fullmatch=True), st.integers(1, 2**31 - 1)))
def test_per_topic_map_round_trips(counts: dict[str, int]) -> None:
    text = ",".join(f"{topic}:{count}" for topic, count in counts.items())
    assert config.per_topic()(text) == counts


def test_address_map() -> None:
    assert config.address_map("broker-1:9092=127.0.0.1:1,b:2=c:3") == {
        ("broker-1", 9092): ("127.0.0.1", 1),
        ("b", 2): ("c", 3),
    }
    with pytest.raises(ValueError, match="must be"):
        config.address_map("broker-1:9092")
