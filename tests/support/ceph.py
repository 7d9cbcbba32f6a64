"""The object store of profile `object-store` alone, in a container that can be killed.

Its image is there after `deploy/tools/images.sh object-store`.
"""

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from kafka2011.runtime import object_store
from tests import ROOT
from tests.support.commands import held_port
from tests.support.object_store import environment
from tests.support.waiting import wait_until

BUCKET = "warehouse"  # the container makes it
HARDENED = "--init --user 10001:10001 --read-only --cap-drop ALL --tmpfs /tmp:mode=1777,size=32m"
HARDENED += " --security-opt no-new-privileges:true --memory 768m --pids-limit 512"
START_TIMEOUT_S = 120


class CephStore:
    """The container, its volume, and the variables of a client."""

    def __init__(self) -> None:
        self._name = f"kafka2011-ceph-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self.variables = environment(f"http://127.0.0.1:{held_port()}")

    def run(self) -> None:
        port = self.variables["AWS_ENDPOINT_URL"].rpartition(":")[2]
        tag = _output(str(ROOT / "deploy/tools/setting.sh"), "KAFKA2011_VERSION", "dev")
        self._docker(
            *("run", "--detach", "--name", self._name, "--hostname", "object-store"),
            *("--env", "AWS_ACCESS_KEY_ID", "--env", "AWS_SECRET_ACCESS_KEY"),
            *("--publish", f"127.0.0.1:{port}:9000", "--volume", f"{self._name}:/data"),
            *(*HARDENED.split(), f"localhost/kafka2011/ceph:{tag}"),
        )
        self.wait_until_serving()

    def kill(self) -> None:
        self._docker("kill", self._name)

    def start(self) -> None:
        self._docker("start", self._name)

    def remove(self) -> None:
        self._docker("rm", "--force", self._name)
        self._docker("volume", "rm", "--force", self._name)

    def log(self) -> str:
        return self._docker("logs", "--tail", "20", self._name, stderr=subprocess.STDOUT)

    def wait_until_serving(self) -> None:
        """With the variables of a client in this process's environment."""
        wait_until(_answers, lambda: f"the store serves:\n{self.log()}", START_TIMEOUT_S)

    def _docker(self, *words: str, stderr: int | None = None) -> str:
        return _output("docker", *words, stderr=stderr, env={**os.environ, **self.variables})


def _answers() -> bool:
    try:
        return object_store.is_directory(BUCKET) is not None
    except OSError:
        return False


def _output(*words: str, stderr: int | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True, env=env, timeout=300
    )
    return done.stdout.strip()


@contextmanager
def ceph_store() -> Iterator[CephStore]:
    """A store that serves, until the end; this process's environment is that of its clients."""
    store = CephStore()
    before = {name: os.environ.get(name) for name in store.variables}
    os.environ.update(store.variables)
    try:
        store.run()
        yield store
    finally:
        store.remove()
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
