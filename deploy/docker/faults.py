"""Sets the faults of a proxy (`kafka2011 proxy`) and prints its state; `make wan` runs it there.

usage: python3 -I - BODY [URL] < faults.py

A refused change, or a proxy that does not answer, is one line with the reason and status 2.
"""

import json
import sys
import urllib.error
import urllib.request

URL = "http://127.0.0.1:8080/faults"
TIMEOUT_S = 15.0


def main(body: str, url: str = URL) -> str:
    """The proxy's answer. Raises ValueError with its reason."""
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise ValueError(
                f"{url}: faults are switched off (proxy.control); start the proxy with it: "
                "make up CHAOS=on, or PROXY_CONTROL=true make up"
            ) from None
        raise ValueError(reason_in(error.read()) or f"{error.code} {error.reason}") from None
    except OSError as error:
        raise ValueError(f"{url}: {error}") from None


def reason_in(answer: bytes) -> str:
    """The reason in a refusal; empty when the answer has another form."""
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return ""


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{main(*sys.argv[1:])}\n")
    except ValueError as error:
        sys.stderr.write(f"kafka2011: the link was not changed: {error}\n")
        sys.exit(2)
