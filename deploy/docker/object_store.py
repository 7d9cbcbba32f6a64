"""Runs an object store in one container: Ceph's monitor, one OSD and its gateway for Amazon's S3.

The first start formats /data and makes the user and the bucket `warehouse`; the gateway is open to
others only when both are there. Each later start serves what is there, also after a kill at any
moment. When one of the three processes ends, all do, and the container with status 1.

The user's credentials are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the environment, and
change with it. They are passed on through pipes: in no argument, file or log line.
"""

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

DATA = Path("/data")
FORMATTED = DATA / "formatted"  # the monitor's and the OSD's files are whole
PREPARED = DATA / "prepared"  # a hash of the credentials that the user has; the bucket is there
USER = BUCKET = "warehouse"
PORT = 9000
SETUP_PORT = 9001
START_TIMEOUT_S = 300
STOP_TIMEOUT_S = 15
OSD_UUID = "6b61666b-6132-3031-3100-6f7364000000"
# Parts of files whose upload was never completed: a writer was killed.
LIFECYCLE = (
    "<LifecycleConfiguration><Rule><ID>unfinished</ID><Status>Enabled</Status><Prefix></Prefix>"
    "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation>"
    "</AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>"
)


class Failed(Exception):
    """The store cannot run; the text is one line that says why."""


class Stopped(Exception):
    """SIGTERM or SIGINT."""


def say(text: str) -> None:
    sys.stderr.write(f"object-store: {text}\n")
    sys.stderr.flush()


def run(*command: str, given: str = "", timeout_s: float = START_TIMEOUT_S) -> str:
    """The output of a command, which gets `given` on its standard input. Raises Failed."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]} did not end in {timeout_s:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise Failed(f"{' '.join(command[:3])}: {lines[-1]}")
    return done.stdout


class Daemons:
    """The processes, in the order in which they were started."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> None:
        self._running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def start_gateway(self, address: str) -> None:
        # Without tcp_nodelay each answer takes 40 ms.
        frontend = f"beast endpoint={address} tcp_nodelay=1"
        self.start("radosgw", "radosgw", "-f", "-n", "client.rgw", f"--rgw-frontends={frontend}")

    def stop(self, name: str) -> None:
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop_all(self) -> None:
        """The last one first: each needs those before it to end well."""
        for name in reversed(list(self._running)):
            self.stop(name)

    def check(self) -> None:
        """Raises Failed when one has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise Failed(f"{name} ended with status {process.returncode}")


def format_data(daemons: Daemons) -> None:
    """Make the monitor's and the OSD's files, and start the monitor. Raises Failed."""
    say("formats /data")
    for directory in (DATA / "mon", DATA / "osd"):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    PREPARED.unlink(missing_ok=True)
    run("ceph-mon", "--mkfs", "-i", "a")
    start_monitor(daemons)
    run("ceph", "osd", "new", OSD_UUID)
    run("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", OSD_UUID)
    os.sync()
    FORMATTED.touch()


def start_monitor(daemons: Daemons) -> None:
    daemons.start("ceph-mon", "ceph-mon", "-f", "-i", "a")
    run("ceph", "--connect-timeout", "60", "mon", "stat")
    daemons.check()


def curl(key: str, secret: str, path: str, *words: str) -> str:
    """The status of a signed request to the gateway; empty while it does not answer."""
    url = f"http://127.0.0.1:{SETUP_PORT}/{path}"
    done = subprocess.run(
        [
            *("curl", "-sS", "-K", "-", "-o", "/dev/null", "-w", "%{http_code}"),
            *("--aws-sigv4", "aws:amz:us-east-1:s3", *words, url),
        ],
        input=f'user = "{key}:{secret}"\n',
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    return "" if done.returncode else done.stdout


def prepare(daemons: Daemons, key: str, secret: str) -> None:
    """Give the user these credentials, and make the bucket, on a port of loopback. Raises Failed,
    Stopped."""
    say(f"makes the user and the bucket {BUCKET}")
    try:
        found = run("radosgw-admin", "metadata", "get", f"user:{USER}")
    except Failed:
        run("radosgw-admin", "user", "create", "--uid", USER, "--display-name", USER)
        found = run("radosgw-admin", "metadata", "get", f"user:{USER}")
    user = json.loads(found)
    user["data"]["keys"] = [{"user": USER, "access_key": key, "secret_key": secret}]
    run("radosgw-admin", "metadata", "put", f"user:{USER}", given=json.dumps(user))

    daemons.start_gateway(f"127.0.0.1:{SETUP_PORT}")
    give_up_at = time.monotonic() + START_TIMEOUT_S
    while (status := curl(key, secret, BUCKET, "-X", "PUT")) != "200":
        if status and time.monotonic() > give_up_at:
            raise Failed(f"the bucket could not be made: status {status}")
        daemons.check()
        time.sleep(0.2)
    digest = hashlib.md5(LIFECYCLE.encode(), usedforsecurity=False).digest()
    md5 = f"Content-MD5: {base64.b64encode(digest).decode()}"
    status = curl(
        *(key, secret, f"{BUCKET}?lifecycle="),
        *("-X", "PUT", "-H", md5, "-H", "Content-Type: application/xml", "-d", LIFECYCLE),
    )
    if status != "200":
        raise Failed(f"the bucket's rule could not be set: status {status}")
    daemons.stop("radosgw")


def serve(daemons: Daemons, key: str, secret: str) -> None:
    """Start everything, and return only by Failed, when a process ends, or Stopped."""
    if FORMATTED.exists():
        start_monitor(daemons)
    else:
        format_data(daemons)
    daemons.start("ceph-osd", "ceph-osd", "-f", "-i", "0")
    credentials = hashlib.sha256(f"{key}:{secret}".encode()).hexdigest()
    if not PREPARED.exists() or PREPARED.read_text() != credentials:
        prepare(daemons, key, secret)
        unfinished = PREPARED.with_suffix(".new")
        unfinished.write_text(credentials)
        unfinished.replace(PREPARED)
    daemons.start_gateway(f"0.0.0.0:{PORT}")
    say(f"serves on port {PORT}")
    while True:
        daemons.check()
        time.sleep(0.5)


def main() -> int:
    key = os.environ.pop("AWS_ACCESS_KEY_ID", "")
    secret = os.environ.pop("AWS_SECRET_ACCESS_KEY", "")
    if not key or not secret or any(c in key + secret for c in '"\\\n'):
        say("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set, without quotes in them")
        return 2

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Stopped

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    daemons = Daemons()
    try:
        serve(daemons, key, secret)
    except Stopped:
        say("stops")
        return 0
    except Failed as error:
        say(str(error))
        return 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        daemons.stop_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
