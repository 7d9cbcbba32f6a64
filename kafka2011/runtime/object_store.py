"""Requests to an object store (Amazon's S3 and what speaks its protocol), for
`storage_paths.ObjectPath`.

A key is BUCKET/KEY here, as Arrow has it.

The store's address and credentials come from where Amazon's tools take them: AWS_ENDPOINT_URL,
AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, the files in ~/.aws, or the
machine's role. None of them is a setting of ours, so that none is in a log, argument or table.

Two clients come with the wheels: Arrow's reads, writes and deletes files; that of delta-rs commits
(its own deletes hold Python's lock, so that a store that hangs would stop the whole process). A
file up to 10 MB is one PUT; a larger one is sent in parts, and appears when the last is there.

A request that failed for a transient reason is sent again for half a minute, counted in `RETRIES`
and logged, so that a store that throttles or hangs is seen.
"""

import functools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from kafka2011.runtime.config import without_password
from kafka2011.runtime.logs import get_logger
from kafka2011.runtime.os_errors import first_line

log = get_logger(__name__)

T = TypeVar("T")

RETRY_FOR_S = 30.0
FIRST_PAUSE_S = 0.1
PAUSE_MAX_S = 5.0
CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 30
READ_ATTEMPTS = 5  # of one range of a file, by Arrow itself

THROTTLED, TIMEOUT, UNAVAILABLE = "throttled", "timeout", "unavailable"
_SIGNS = (
    (THROTTLED, ("slow_down", "slowdown", "throttl", "too many requests", "reduce your request")),
    (TIMEOUT, ("timeout", "timed out")),
    (
        UNAVAILABLE,
        (
            "network_connection",
            "connection",
            "service_unavailable",
            "internal_failure",
            "status 500",
            "status 502",
            "status 503",
            "status 504",
        ),
    ),
)


_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
)


class Retries:
    """Counts requests of this process that were sent again, by reason. Thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note(self, reason: str) -> None:
        with self._lock:
            self._counts[reason] += 1

    def take(self) -> dict[str, int]:
        """The counts since the last call."""
        with self._lock:
            taken, self._counts = dict(self._counts), Counter()
        return taken


RETRIES = Retries()


def reason_to_retry(error: OSError) -> str | None:
    """Why the request may succeed when it is sent again; None when it will not."""
    if isinstance(error, FileNotFoundError | PermissionError):
        return None
    text = str(error).lower()
    return next((reason for reason, signs in _SIGNS if any(s in text for s in signs)), None)


def with_retries(
    request: Callable[[], T],
    what: str,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """The answer of the request, which is sent again while the store cannot take it.

    Raises its OSError at once where sending again cannot help, else after RETRY_FOR_S.
    """
    give_up_at = monotonic() + RETRY_FOR_S
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return request()
        except OSError as error:
            reason = reason_to_retry(error)
            if reason is None or monotonic() + pause_s > give_up_at:
                raise
            RETRIES.note(reason)
            log.warning("store_retry", request=what, reason=reason, error=first_line(error))
        sleep(pause_s * random.uniform(0.5, 1))
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


# --- the two clients ------------------------------------------------------------------------------


def endpoint() -> str:
    """The store's URL; empty for Amazon's own. Raises OSError for one that no client accepts."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if url := os.environ.get(name, ""):
            if not _is_endpoint(url):
                shown = without_password(url)
                raise OSError(f"{name}={shown!r} must be http://host:port or https://host:port")
            return url
    return ""


def _is_endpoint(url: str) -> bool:
    """Whether Arrow accepts the URL; it takes a host without a scheme, too."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no number where the port should be
        return False


def delta_options() -> dict[str, str]:
    """What delta-rs is given besides the environment: no credentials.

    Raises OSError when the environment turns off what keeps two writers apart, and as `endpoint`
    does. Variables that are empty, as Compose leaves them, are unset: delta-rs would take them for
    values.
    """
    for name in _VARIABLES:
        if os.environ.get(name) == "":
            del os.environ[name]
    if os.environ.get("AWS_S3_ALLOW_UNSAFE_RENAME"):
        raise OSError(
            "AWS_S3_ALLOW_UNSAFE_RENAME is set, with which one load overwrites another's commit: "
            "unset it"
        )
    found = {
        "aws_conditional_put": "etag",
        "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
        "timeout": f"{REQUEST_TIMEOUT_S}s",
        "retry_timeout": f"{RETRY_FOR_S:.0f}s",
    }
    url = endpoint()
    if url:
        found["aws_endpoint_url"] = url
        found["aws_allow_http"] = str(url.startswith("http://")).lower()
    return found


def files(attempts: int = READ_ATTEMPTS) -> Any:
    """Arrow's client; its paths are bucket/key. `attempts`: how often it tries, unseen by us."""
    return _files(endpoint(), attempts)


@functools.cache
def _files(url: str, attempts: int) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    options: dict[str, Any] = {}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if url:
        scheme, _, host = url.rpartition("://")
        options |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
        region = region or "us-east-1"  # as delta-rs has it; asking for it would take seconds
    if region:
        options["region"] = region
    return S3FileSystem(
        allow_delayed_open=True,  # or each file would take three requests
        background_writes=False,
        check_directory_existence_before_creation=True,
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=attempts),
        **options,
    )


# --- requests -------------------------------------------------------------------------------------


def read(key: str) -> bytes:
    """The whole object. Raises FileNotFoundError, OSError."""

    def request() -> bytes:
        with files(1).open_input_stream(key) as stream:
            return bytes(stream.read())

    return with_retries(request, f"read s3://{key}")


def write(key: str, data: bytes | memoryview) -> None:
    """Put the object, replacing one that is there. Raises OSError."""

    def request() -> None:
        with files(1).open_output_stream(key) as stream:
            stream.write(data)

    with_retries(request, f"write s3://{key}")


def remove(key: str, *, missing_ok: bool = False) -> None:
    """Delete the object. Raises OSError, FileNotFoundError unless `missing_ok`.

    If it was the last one of its directory, Arrow leaves an empty object for the directory.
    """
    if is_directory(key) is None:
        if missing_ok:
            return
        raise FileNotFoundError(f"there is no s3://{key}")
    with_retries(lambda: files(1).delete_file(key), f"delete s3://{key}")


def remove_below(key: str) -> None:
    """Delete every object below `key`. Raises OSError."""
    with_retries(lambda: files(1).delete_dir(key), f"delete all of s3://{key}")


def is_directory(key: str) -> bool | None:
    """Whether objects are below `key`; False when it is an object itself, None if nothing is."""
    from pyarrow.fs import FileType

    found = with_retries(lambda: files(1).get_file_info(key), f"look for s3://{key}")
    return None if found.type == FileType.NotFound else found.type == FileType.Directory


def names(key: str) -> Iterator[str]:
    """The names directly below `key`. Raises FileNotFoundError if there are none, OSError."""
    return (name.partition("/")[0] for name in _below(key, recursive=False))


def names_below(key: str) -> Iterator[str]:
    """The names of all that is below `key`, relative to it, with slashes."""
    return _below(key, recursive=True)


def _below(key: str, *, recursive: bool) -> Iterator[str]:
    from pyarrow.fs import FileSelector

    selector = FileSelector(key, recursive=recursive)
    found = with_retries(lambda: files(1).get_file_info(selector), f"list s3://{key}")
    start = len(key) + 1
    return (info.path[start:] for info in found)
