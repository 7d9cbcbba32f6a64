"""Places: what a setting may name, what a path of a store is, and which request is sent again."""

import io
from pathlib import Path

import pytest

from kafka2011.runtime import object_store
from kafka2011.runtime.config import ConfigError, load
from kafka2011.runtime.object_store import reason_to_retry, with_retries
from kafka2011.runtime.shared_settings import ReportPlace, WarehousePlace
from kafka2011.runtime.storage_paths import ObjectPath, storage_path, write_whole
from tests.support.synced import Synced

SOME = ObjectPath("bucket", "a/b")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("var/warehouse", Path("var/warehouse")),
        ("s3://bucket/a/b/", SOME),
        ("s3a://bucket//a/b", SOME),
        ("s3://bucket", ObjectPath("bucket")),
    ],
)
def test_a_setting_names_a_directory_or_a_prefix(text: str, found: object) -> None:
    assert storage_path(text) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be a path"),
        ("hdfs://host:8020/x", "hdfs:// is not a known store"),
        ("s3://key:secret@bucket/x", "credentials are taken from"),
        ("s3://bucket/x?region=y", "and no more"),
        ("s3://B/x", "'B' is not a bucket name"),
        ("s3://bucket/../x", "not have . or .."),
    ],
)
def test_what_no_place_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        storage_path(text)


def test_a_password_in_a_setting_is_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        load(WarehousePlace, overrides=["warehouse.dir=s3://me:secret@bucket/x"], environment={})
    assert "secret@" not in str(refused.value)
    assert "s3://***@bucket/x" in str(refused.value)


def test_only_the_warehouse_may_be_in_a_store() -> None:
    with pytest.raises(
        ConfigError, match=r"report.dir='s3://bucket/x' in --set: must be a path of this"
    ):
        load(ReportPlace, overrides=["report.dir=s3://bucket/x"], environment={})


@pytest.mark.parametrize("url", ["ftp://x", "http://", "https://me:secret@h:port"])
def test_an_endpoint_that_no_client_takes_is_an_error_of_the_store(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    for call in (lambda: object_store.read("bucket/x"), object_store.delta_options):
        with pytest.raises(OSError, match=r"^AWS_ENDPOINT_URL='.*' must be http") as raised:
            call()
        assert "secret" not in str(raised.value)


def test_a_path_of_a_store() -> None:
    assert (str(SOME), SOME.name, SOME.parent, SOME.resolve()) == (
        "s3://bucket/a/b",
        "b",
        ObjectPath("bucket", "a"),
        SOME,
    )
    assert ObjectPath("bucket", "a/b/c/d=1/e") == SOME / "c" / "d=1/e"
    assert (str(ObjectPath("bucket")), ObjectPath("bucket") / "x") == (
        "s3://bucket",
        ObjectPath("bucket", "x"),
    )
    assert sorted([SOME / "c", SOME]) == [SOME, SOME / "c"]


def test_a_file_that_cannot_be_finished_is_not_there(tmp_path: Path) -> None:
    def half(file: io.BufferedWriter) -> None:
        file.write(b"half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        write_whole(tmp_path / "new" / "file", half)  # type: ignore[arg-type]
    assert [*(tmp_path / "new").iterdir()] == []
    assert write_whole(tmp_path / "new" / "file", lambda file: file.write(b"whole")) == 5
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_whole_file_outlives_a_power_failure_with_its_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = Synced(monkeypatch)
    write_whole(tmp_path / "a" / "b" / "file", lambda file: file.write(b"whole"))
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "file"]
    assert [synced.has_name(one) for one in made] == [True] * 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("AWS Error SLOW_DOWN during PutObject operation: x"), "throttled"),
        (
            OSError(
                "AWS Error NETWORK_CONNECTION during GetObject: curlCode: 28, Timeout was reached"
            ),
            "timeout",
        ),
        (
            OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7"),
            "unavailable",
        ),
        (OSError("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation"), "unavailable"),
        (OSError("AWS Error ACCESS_DENIED during PutObject operation"), None),
        (OSError("AWS Error NO_SUCH_BUCKET during PutObject operation"), None),
        (FileNotFoundError("timeout"), None),
    ],
)
def test_what_passes_is_tried_again_and_what_does_not_is_not(
    error: OSError, reason: str | None
) -> None:
    assert reason_to_retry(error) == reason


def test_a_request_is_sent_again_for_half_a_minute() -> None:
    now = [0.0]
    asked = []

    def request() -> None:
        asked.append(now[0])
        raise OSError("SLOW_DOWN")

    def sleep(seconds: float) -> None:
        now[0] += seconds

    object_store.RETRIES.take()
    with pytest.raises(OSError, match="SLOW_DOWN"):
        with_retries(request, "write x", monotonic=lambda: now[0], sleep=sleep)
    assert 20 < asked[-1] <= object_store.RETRY_FOR_S
    assert object_store.RETRIES.take() == {"throttled": len(asked) - 1}
    assert object_store.RETRIES.take() == {}
