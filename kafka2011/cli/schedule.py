"""`kafka2011 schedule FILE`: run load jobs, reports and streams at their times."""

import os
from pathlib import Path
from typing import Annotated

import typer

from kafka2011.cli.options import Settings
from kafka2011.cli.output import fail
from kafka2011.runtime.os_errors import reason_of
from kafka2011.runtime.process_settings import load_or_exit
from kafka2011.services.warehouse.schedule.config import ScheduleConfig

app = typer.Typer(add_completion=False)

# Commands that end and are meant to be repeated.
SCHEDULABLE = ("load", "report", "reports", "sql", "stream", "audit")


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="file with the schedule")],
    set_: Settings = None,
    check: Annotated[
        bool, typer.Option("--dry-run", "--check", help="only check the schedule")
    ] = False,
) -> None:
    """Run commands of kafka2011 at their times until SIGTERM. A line of the schedule is
    `every 10m COMMAND...`, `hourly :05 COMMAND...` or `daily 02:30 COMMAND...` (UTC). A job has the
    settings of this environment, except the process's name and its metrics port."""
    from kafka2011.services.warehouse.schedule.timetable import ScheduleError, parse_schedule

    try:
        jobs = parse_schedule(file.read_text(encoding="utf-8"), SCHEDULABLE)
    except (ScheduleError, OSError, UnicodeDecodeError) as error:
        place = "" if isinstance(error, OSError) else f"{file}: "
        fail(f"{place}{reason_of(error)}", 2, command="schedule")
    if check:
        print(f"{len(jobs)} jobs")
        return
    config = load_or_exit(ScheduleConfig, overrides=set_ or [])
    from kafka2011.services.warehouse.schedule.scheduler import run_schedule

    raise SystemExit(run_schedule(config, jobs, os.environ))
