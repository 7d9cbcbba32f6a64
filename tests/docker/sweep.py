"""Removes what test runs left on the engine: `python -m tests.docker.sweep`.

Run by deploy/tools/test-containers.sh after pytest, however that ended. All of a run whose process
is gone goes: containers, networks, volumes. Exit status 1 when something could not be removed.
"""

import sys

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from tests.docker.stack import sweep_dead_runs


def main() -> int:
    try:
        client = docker.from_env(timeout=300)
        removed = sweep_dead_runs(client)
    except (DockerException, RequestException) as error:
        print(f"kafka2011: the engine could not be swept: {error}", file=sys.stderr)
        return 1
    if removed:
        print(f"removed what was left behind: {', '.join(removed)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
