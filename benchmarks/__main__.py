"""Measures every question in both builds of the hot loops and prints the table.

Each question is answered by a process of its own, three times unless `--runs` says otherwise;
figures are medians. The history, one JSON object a run of this command, is kept in
var/benchmarks/history.jsonl; `--json` prints the object instead of the table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.machine import facts
from benchmarks.questions import Question, questions
from benchmarks.report import print_report

BUILDS = ("compiled", "pure")
DATA_DIR = Path("var/benchmarks")


def ask(question: Question, build: str, given: argparse.Namespace) -> list[dict[str, float]]:
    """The answers of a child process, one a run. Raises CalledProcessError."""
    environment = {name: value for name, value in os.environ.items() if name != "KAFKA2011_PURE"}
    if build == "pure":
        environment["KAFKA2011_PURE"] = "1"
    command = [sys.executable, "-m", "benchmarks.ask", question.name, "--group", question.group]
    command += ["--data-dir", str(given.data_dir), "--runs", str(given.runs)]
    if given.large:
        command.append("--large")
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def medians(answers: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(answer[name] for answer in answers) for name in answers[0]}


def is_compiled() -> bool:
    from kafka2011.protocol import hot

    return bool(hot.COMPILED)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the results as JSON, no table")
    parser.add_argument("--large", action="store_true", help="logs of 20 and 50 GB as well")
    parser.add_argument("--runs", type=int, default=3, help="runs of each question (3)")
    parser.add_argument("--only", default="", help="questions whose group or name holds this")
    parser.add_argument("--build", choices=BUILDS, action="append", help="one build alone")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help=f"({DATA_DIR})")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    given.data_dir.mkdir(parents=True, exist_ok=True)
    builds = given.build or (list(BUILDS) if is_compiled() else ["pure"])
    asked = [
        question
        for question in questions(is_large=given.large)
        if given.only in f"{question.group}: {question.name}"
    ]
    todo = [
        (question, build)
        for question in asked
        for build in builds
        if build == "compiled" or not question.compiled_only
    ]
    if not todo:
        print(f"no question holds {given.only!r}", file=sys.stderr)
        return 2
    machine = facts(given.data_dir)
    results: list[dict[str, Any]] = []
    # Into a file or a pipe the rows stay whole.
    console = Console(stderr=given.json, width=None if sys.stdout.isatty() else 160)
    with Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=len(todo))
        for question, build in todo:
            progress.update(task, description=f"{question.group}: {question.name} ({build})")
            try:
                answers = ask(question, build, given)
            except subprocess.CalledProcessError as error:
                message = error.stderr.decode().strip().splitlines()
                console.print(
                    f"{question.group}: {question.name} ({build}) failed: "
                    f"{message[-1] if message else error}",
                    style="red",
                )
                return 1
            results.append(
                {
                    "group": question.group,
                    "question": question.name,
                    "build": build,
                    "answers": answers,
                    "median": medians(answers) if question.group != "log sizes" else {},
                }
            )
            progress.advance(task)
    machine["load_average_after"] = round(os.getloadavg()[0], 2)
    entry = {"time": int(time.time()), "machine": machine, "runs": given.runs, "results": results}
    with open(given.data_dir / "history.jsonl", "a", encoding="utf-8") as history:
        history.write(json.dumps(entry) + "\n")
    if given.json:
        print(json.dumps(entry, indent=1))
    else:
        print_report(console, entry, asked, builds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
