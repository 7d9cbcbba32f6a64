"""Disturbs the link between the datacenters at random by a seed, and mends it (profile `chaos`).

usage: disturb.py FAULTS_URL SEED [PAUSE_S]

Faults and the pauses between them last a random time around PAUSE_S. Each change is a
line on standard error; port 8080 answers health checks. SIGTERM mends the link and ends it.
"""

import json
import random
import signal
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

FAULTS: tuple[dict[str, object], ...] = (
    {"delay_ms": 100, "jitter_ms": 50},
    {"delay_ms": 400, "rate_bytes_s": 375_000},
    {"rate_bytes_s": 50_000},
    {"cut": True},
    {"blackhole": "both"},
    {"hold": "to_client"},
)
PAUSE_S = 15.0


class Alive(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Health checks are not logged."""


def change(url: str, faults: dict[str, object]) -> None:
    """Change the link. A failure is logged and not retried: the next change follows soon."""
    body = json.dumps({"faults": {"clear": True, **faults}}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
    try:
        urllib.request.urlopen(request, timeout=5).close()  # noqa: S310
        sys.stderr.write(f"{json.dumps(faults) if faults else 'mended'}\n")
    except (urllib.error.URLError, TimeoutError) as error:
        sys.stderr.write(f"{url}: {error}\n")


def main(url: str, seed: str, pause_s: str = str(PAUSE_S)) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    server = HTTPServer(("0.0.0.0", 8080), Alive)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rng = random.Random(seed)
    is_well = True
    while not stop.wait(rng.uniform(0.5, 1.5) * float(pause_s)):
        change(url, rng.choice(FAULTS) if is_well else {})
        is_well = not is_well
    change(url, {})


if __name__ == "__main__":
    main(*sys.argv[1:])
