"""Answers one question in this process: `python -m benchmarks.ask NAME --data-dir DIR --runs N`.

Prints one JSON object a run. KAFKA2011_PURE=1 in the environment makes it, and the broker that it
starts, use the pure loops.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.log_sizes import NotEnoughRoom
from benchmarks.questions import questions
from kafka2011.runtime.logs import configure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--group", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    configure("benchmark", level="WARNING")
    for question in questions(is_large=given.large):
        if (question.group, question.name) == (given.group, given.name):
            try:
                for answer in question.ask(given.data_dir, given.runs):
                    print(json.dumps(answer), flush=True)
            except NotEnoughRoom as error:
                print(error, file=sys.stderr)
                return 1
            return 0
    print(f"no question {given.group}: {given.name}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
