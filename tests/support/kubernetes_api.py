"""A stand-in for Kubernetes' API server: what Spark asks of one, with pods that are processes.

It keeps objects as they were sent, and starts the one container of a pod on this machine with the
command, arguments and environment of its spec, and with nothing of this process's environment but
PATH and JAVA_HOME. It schedules, limits and checks nothing.
"""

import json
import os
import re
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]

_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?")
_LISTS = {
    "pods": "PodList",
    "configmaps": "ConfigMapList",
    "persistentvolumeclaims": "PersistentVolumeClaimList",
}
_INHERITED = ("PATH", "JAVA_HOME")
POD_IP = "127.0.0.1"
NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}


class KubernetesApi:
    """`secrets` are variables by secret; `commands` the local files of a container's commands."""

    def __init__(
        self,
        logs: Path,
        secrets: Mapping[str, Mapping[str, str]],
        commands: Mapping[str, list[str]],
    ) -> None:
        self._logs, self._secrets, self._commands = logs, secrets, commands
        self._objects: dict[tuple[str, str], Object] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self.ended = threading.Event()
        self.requests: list[tuple[str, str]] = []

    def put(self, kind: str, found: Object) -> Object:
        """Keep an object, and start it if it is a pod with a command."""
        metadata = found["metadata"]
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z"}
        metadata.setdefault("resourceVersion", "1")
        with self._lock:
            self._objects[kind, metadata["name"]] = found
            if kind == "pods" and found["spec"]["containers"][0].get("command"):
                self._processes[metadata["name"]] = self._started(found)
        return found

    def _started(self, pod: Object) -> subprocess.Popen[bytes]:
        name, [container] = pod["metadata"]["name"], pod["spec"]["containers"]
        variables = {key: os.environ[key] for key in _INHERITED if key in os.environ}
        for source in container.get("envFrom", []):
            variables |= self._secrets[source["secretRef"]["name"]]
        fields = {"status.podIP": POD_IP, "metadata.name": name}
        for one in container.get("env", []):
            place = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            variables[one["name"]] = fields[place] if place else one.get("value", "")
        [command] = container["command"]
        with (self._logs / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*self._commands[command], *container.get("args", [])],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def shown(self, kind: str, name: str) -> Object | None:
        """The object with what became of its process."""
        found = self._objects.get((kind, name))
        if found is None or kind != "pods":
            return found
        process = self._processes.get(name)
        status = None if process is None else process.poll()
        phase = "Running" if status is None else "Succeeded" if status == 0 else "Failed"
        ready = {"type": "Ready", "status": str(phase == "Running")}
        return {**found, "status": {"phase": phase, "podIP": POD_IP, "conditions": [ready]}}

    def listed(self, kind: str, selector: str = "") -> list[Object]:
        """Those with the labels of a selector's `name=value`; other terms are passed over."""
        terms = [term for term in selector.split(",") if "=" in term and "!=" not in term]
        wanted = dict(term.split("=", 1) for term in terms)
        names = [name for known, name in list(self._objects) if known == kind]
        found = [shown for name in names if (shown := self.shown(kind, name)) is not None]
        return [one for one in found if wanted.items() <= one["metadata"].get("labels", {}).items()]

    def running(self, selector: str) -> list[Object]:
        """The pods whose process runs."""
        found = self.listed("pods", selector)
        return [one for one in found if one["status"]["phase"] == "Running"]

    def delete(self, kind: str, name: str) -> Object | None:
        """Forget an object; a pod's process is ended."""
        with self._lock:
            found = self._objects.pop((kind, name), None)
        process = self._processes.pop(name, None) if kind == "pods" else None
        if process is not None:
            process.terminate()
            process.wait()
        return found

    def kill(self, name: str) -> None:
        """The pod's process is killed; its object stays, as failed."""
        self._processes[name].kill()
        self._processes[name].wait()

    def close(self) -> None:
        self.ended.set()
        for name in list(self._processes):
            self.delete("pods", name)


@contextmanager
def kubernetes_api(api: KubernetesApi) -> Iterator[str]:
    """Serves it; the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self, found: Object | None) -> None:
            status = 200 if found is not None else 404
            data = json.dumps(found if found is not None else NOT_FOUND).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _body(self) -> Any:
            size = int(self.headers.get("Content-Length") or 0)
            return json.loads(self.rfile.read(size) or b"{}")

        def _do(self) -> None:
            url, body = urlsplit(self.path), self._body()
            api.requests.append((self.command, self.path))
            found = _PATH.fullmatch(url.path)
            if found is None:
                return self._answer(
                    {"major": "1", "minor": "32"} if url.path == "/version" else None
                )
            kind, name, query = found["kind"], found["name"], parse_qs(url.query)
            selector = query.get("labelSelector", [""])[0]
            if query.get("watch", ["false"])[0] in ("true", "1"):
                return self._hold()
            if self.command == "POST":
                return self._answer(api.put(kind, body))
            if name is not None:  # a PATCH, labels of pods that have ended, changes nothing
                act = api.delete if self.command == "DELETE" else api.shown
                return self._answer(act(kind, name))
            items = api.listed(kind, selector)
            if self.command == "DELETE":
                for one in items:
                    api.delete(kind, one["metadata"]["name"])
            version = {"resourceVersion": "1"}
            self._answer(
                {"kind": _LISTS[kind], "apiVersion": "v1", "metadata": version, "items": items}
            )

        def _hold(self) -> None:
            """A watch in which nothing happens: Spark lists pods as well. It asks for a web socket
            first, and for a stream where the answer is none."""
            if self.headers.get("Upgrade"):
                return self._answer({})
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            api.ended.wait()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        api.close()
        server.shutdown()
        server.server_close()
