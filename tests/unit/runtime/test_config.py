"""Settings: precedence, the error form, and Java's properties files."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka2011.events.settings import SchemaSettings
from kafka2011.runtime import config
from kafka2011.runtime.config import ConfigError, setting
from kafka2011.runtime.process_settings import load_or_exit


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


@dataclass(frozen=True, kw_only=True)
class DirSample:
    broker_id: int = setting("brokerid", 0, config.whole(0), "id")
    log_dir: Path = setting("log.dir", Path("var"), config.path, "directory")


INTERVAL = "KAFKA2011_LOG_FLUSH_INTERVAL"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "server.properties"


def load(
    *overrides: str, file: Path | None = None, known: tuple[str, ...] = (), **environment: str
) -> tuple[Sample, list[str]]:
    """The settings and the warnings, with `--set` for each of `overrides`."""
    return config.load(
        Sample, file=file, overrides=overrides, environment=environment, known_elsewhere=known
    )


def test_set_wins_over_environment_wins_over_file_wins_over_default(file: Path) -> None:
    file.write_text("brokerid=1\nlog.flush.interval=10\n")
    loads = [
        load("brokerid=1"),
        load(file=file),
        load(file=file, **{INTERVAL: "20"}),
        load("log.flush.interval=30", file=file, **{INTERVAL: "20"}),
    ]
    assert [loaded.flush_interval_messages for loaded, _ in loads] == [500, 10, 20, 30]


@pytest.mark.parametrize(
    ("overrides", "environment", "text"),
    [
        (["log.flush.intervall=3", "brokerid=1"], {}, "did you mean log.flush.interval"),
        (["brokerid"], {}, "write it as --set name=value"),
        (["brokerid=1"], {"KAFKA2011_LOG_FLUSH": "3"}, "unknown setting"),
        (["brokerid=x"], {}, "brokerid='x' in --set: must be a whole number"),
        (["brokerid=-1"], {}, "must be at least 0"),
        (["brokerid=1", "enable.zookeeper=True"], {}, "exactly true or false"),
        (["brokerid=1", "topic.retention=a:b"], {}, "'a:b'"),
        (["brokerid=1"], {INTERVAL: "many"}, "in the environment"),
        ([], {}, "brokerid is required: set it in the properties file, with --set brokerid="),
        (["brokerid=666"], {}, "brokerid 666 is taken"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    overrides: list[str], environment: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(*overrides, **environment)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_with_a_bad_value_or_that_cannot_be_read_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the settings in .*server\.properties"):
        load(file=file)
    file.write_text("brokerid=1 \n")  # a trailing space is kept and breaks the number, as in 0.7
    with pytest.raises(ConfigError, match=r"server\.properties"):
        load(file=file)


def test_a_password_is_neither_logged_nor_in_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(url: str) -> str:
        load_or_exit(SchemaSettings, None, [f"schema.registry.url={url}"])
        return capsys.readouterr().err

    assert "schema.registry.url=http://***@h:1/base" in printed("http://me:sec@ret@h:1/base")
    assert "schema.registry.url=http://h:1/a@b" in printed("http://h:1/a@b")
    for refused in ("ftp://me:secret@h:1", "http://me:secret@h:port", "http://me:secret@"):
        with pytest.raises(SystemExit):
            printed(refused)
        [line] = capsys.readouterr().err.splitlines()
        assert "secret" not in line
        assert "***@" in line


@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00\\ud800", "\\u0000"])
def test_what_no_text_and_no_path_can_hold_is_refused(file: Path, escape: str) -> None:
    file.write_text(f"brokerid=1\nlog.dir=/tmp/{escape}\n")
    with pytest.raises(ConfigError, match=f"^log.dir=.* in {file}: must not contain "):
        config.load(DirSample, file=file, environment={})


def test_a_path_that_is_not_utf_8_and_a_file_that_begins_with_a_mark_are_read(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbflog.dir=/tmp/\xe9\\ud83d\\ude00\n")
    loaded, warnings = config.load(DirSample, file=file, environment={})
    assert (os.fsencode(loaded.log_dir), warnings) == (b"/tmp/\xe9" + "\U0001f600".encode(), [])


def test_unknown_in_a_file_is_a_warning_since_the_original_ignores_it(file: Path) -> None:
    file.write_text("brokerid=1\nno.such.name=7\n")
    loaded, warnings = load(file=file)
    assert loaded.broker_id == 1
    assert warnings == [f"unknown setting 'no.such.name' in {file} is ignored"]


def test_names_of_other_processes_are_passed_over_in_the_environment() -> None:
    loaded, warnings = load("brokerid=3", known=("groupid",), KAFKA2011_GROUPID="g", OTHER="x")
    assert (loaded.broker_id, warnings) == (3, [])


def test_a_name_without_effect_is_said_once() -> None:
    _, [warning] = load("brokerid=1", "num.threads=8")
    assert "no effect" in warning


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
        ("a=\\uD83D\\ude00", {"a": "\U0001f600"}),
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
