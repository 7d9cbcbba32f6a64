"""A small object store that speaks S3's protocol, for tests: objects are files of a directory.

It stands for what the warehouse needs of a store: whole objects, PUT under the condition that there
is none yet, ranges, listing, parts. That PUT is atomic (a hard link), also when the server is
killed, and everything is there again when it is started again. `fault` is asked about each request.

    python -m tests.support.object_store DIRECTORY PORT     until it is killed
"""

import hashlib
import os
import shutil
import socket
import sys
import threading
import time
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

KEY_ID = "AKIATESTTESTTESTTEST"
SECRET = "not-a-secret-in-any-log"
BUCKET = "warehouse"

# What befalls a request: (method, key) -> one of these, or None.
CUT = "cut"  # it is done, and the connection is closed without an answer
LOST = "lost"  # it is done, and answered with 503
BUSY = "busy"  # it is not done, and answered with 503 SlowDown
Fault = Callable[[str, str], str | None]


def environment(url: str) -> dict[str, str]:
    """What a client of the store has in its environment."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class ObjectStore(ThreadingHTTPServer):
    """The server. `is_racy`: it looks whether the object is there, and then writes it."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, directory: Path, port: int = 0, *, is_racy: bool = False) -> None:
        self.directory = directory
        self.is_racy = is_racy
        self.fault: Fault = lambda _method, _key: None
        self.puts: list[str] = []  # keys, in order
        (directory / BUCKET).mkdir(parents=True, exist_ok=True)
        (directory / ".new").mkdir(exist_ok=True)
        super().__init__(("127.0.0.1", port), _Request)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def objects(self) -> list[str]:
        return sorted(unquote(name) for name in os.listdir(self.directory / BUCKET))

    def handle_error(self, *_: object) -> None:
        """Clients that go away are part of the tests."""


@contextmanager
def object_store(directory: Path, **named: bool) -> Iterator[ObjectStore]:
    """A store in a thread of this process."""
    server = ObjectStore(directory, **named)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet
    disable_nagle_algorithm = True
    server: ObjectStore

    def log_message(self, *_: object) -> None:
        pass

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _handle(self) -> None:
        url = urlsplit(self.path)
        self.bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        self.key = key
        self.query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self._body()
        if f"Credential={KEY_ID}/" not in self.headers.get("Authorization", ""):
            self._error(403, "AccessDenied")
            return
        fault = self.server.fault(self.command, self.key)
        if fault == BUSY:
            self._error(503, "SlowDown")
            return
        self._fault = fault
        if not (self.server.directory / self.bucket).is_dir():
            self._error(404, "NoSuchBucket")
        else:
            getattr(self, f"_{self.command.lower()}")(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    # --- requests -----------------------------------------------------------------------------

    def _put(self, body: bytes) -> None:
        if "partNumber" in self.query:
            part = self._upload() / f"{int(self.query['partNumber']):05d}"
            part.write_bytes(body)
            self._answer(200, headers={"ETag": _etag(body)})
            return
        self.server.puts.append(self.key)
        if self._store(body, is_new=self.headers.get("If-None-Match") == "*"):
            self._answer(200, headers={"ETag": _etag(body)})
        else:
            self._error(412, "PreconditionFailed")

    def _store(self, body: bytes, *, is_new: bool) -> bool:
        final = self._file(self.key)
        new = self.server.directory / ".new" / uuid.uuid4().hex
        new.write_bytes(body)
        if is_new and self.server.is_racy:
            is_there = final.exists()
            time.sleep(0.02)  # the fault itself: another writer may come in between
            if is_there:
                return False
        elif is_new:
            try:
                os.link(new, final)
            except FileExistsError:
                return False
            finally:
                new.unlink()
            return True
        new.replace(final)
        return True

    def _head(self, _body: bytes) -> None:
        if not self.key:
            self._answer(200)
            return
        self._get(b"")

    def _get(self, _body: bytes) -> None:
        if not self.key:
            self._list()
            return
        try:
            data = self._file(self.key).read_bytes()
            modified = self._file(self.key).stat().st_mtime
        except FileNotFoundError:
            self._error(404, "NoSuchKey")
            return
        headers = {
            "ETag": _etag(data),
            "Last-Modified": self.date_time_string(int(modified)),
            "Accept-Ranges": "bytes",
        }
        asked = self.headers.get("Range")
        if asked is None:
            self._answer(200, data, headers)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(int(last), len(data) - 1) if first and last else len(data) - 1
        if start >= len(data):
            self._error(416, "InvalidRange")
            return
        headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
        self._answer(206, data[start : end + 1], headers)

    def _list(self) -> None:
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        limit = int(self.query.get("max-keys", "1000"))
        rows: list[str] = []
        seen: set[str] = set()
        is_cut, last = False, ""
        for key in self.server.objects():
            if not key.startswith(prefix) or key <= after:
                continue
            inner, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            common = f"{prefix}{inner}{delimiter}" if found else ""
            if common and (common in seen or after.startswith(common)):
                continue
            if len(rows) == limit:
                is_cut = True
                break
            last = key
            if common:
                seen.add(common)
                rows.append(f"<CommonPrefixes><Prefix>{escape(common)}</Prefix></CommonPrefixes>")
                last = common + "\U0010ffff"
                continue
            file = self._file(key)
            changed = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(file.stat().st_mtime))
            rows.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{changed}</LastModified>"
                f'<ETag>"x"</ETag><Size>{file.stat().st_size}</Size>'
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if is_cut else ""
        self._xml(
            f"<ListBucketResult><Name>{self.bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(rows)}</KeyCount><MaxKeys>{limit}</MaxKeys>"
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{token}{''.join(rows)}"
            "</ListBucketResult>"
        )

    def _delete(self, _body: bytes) -> None:
        if "uploadId" in self.query:
            shutil.rmtree(self._upload(), ignore_errors=True)
        else:
            self._file(self.key).unlink(missing_ok=True)
        self._answer(204)

    def _post(self, body: bytes) -> None:
        if "delete" in self.query:
            keys = [
                node.text or "" for node in ET.fromstring(body).iter() if node.tag.endswith("Key")
            ]
            for key in keys:
                self._file(key).unlink(missing_ok=True)
            gone = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            self._xml(f"<DeleteResult>{gone}</DeleteResult>")
        elif "uploads" in self.query:
            self.query["uploadId"] = uuid.uuid4().hex
            self._upload().mkdir()
            self._xml(
                f"<InitiateMultipartUploadResult><Bucket>{self.bucket}</Bucket>"
                f"<Key>{escape(self.key)}</Key><UploadId>{self.query['uploadId']}</UploadId>"
                "</InitiateMultipartUploadResult>"
            )
        else:
            parts = sorted(self._upload().iterdir())
            data = b"".join(part.read_bytes() for part in parts)
            self._store(data, is_new=False)
            shutil.rmtree(self._upload())
            self._xml(
                f"<CompleteMultipartUploadResult><Key>{escape(self.key)}</Key>"
                f"<ETag>{escape(_etag(data))}</ETag></CompleteMultipartUploadResult>"
            )

    # --- bytes --------------------------------------------------------------------------------

    def _file(self, key: str) -> Path:
        return self.server.directory / self.bucket / quote(key, safe="")

    def _upload(self) -> Path:
        return self.server.directory / ".new" / f"upload-{self.query['uploadId']}"

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b"".join(self._chunks())
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "x-amz-decoded-content-length" in self.headers:
            return _decoded(data)
        return data

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def _xml(self, text: str) -> None:
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _error(self, status: int, code: str) -> None:
        self._answer(
            status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        )

    def _answer(
        self, status: int, data: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        fault, self._fault = getattr(self, "_fault", None), None
        if fault == CUT:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault == LOST:
            self._error(503, "ServiceUnavailable")
            return
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("x-amz-request-id", "1")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        self.wfile.flush()


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _decoded(data: bytes) -> bytes:
    """The content of an aws-chunked body: `size in hex[;signature] CRLF bytes CRLF`, ..., 0."""
    found, at = [], 0
    while True:
        end = data.index(b"\r\n", at)
        size = int(data[at:end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(found)
        found.append(data[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


if __name__ == "__main__":
    with ObjectStore(Path(sys.argv[1]), int(sys.argv[2])) as served:
        print(served.url, flush=True)
        served.serve_forever()
