"""spark-submit spark-jobs/reports.py [NAME]... [--set name=value]

The reports on member activity: click-through, searches, co-viewed pages, sessions, abuse. The same
as `kafka2011 reports`, under spark-submit.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    if str(ROOT) not in sys.path:  # a clone that is not installed
        sys.path.insert(0, str(ROOT))
    from kafka2011.services.warehouse.commands.reports import app

    app(prog_name="reports.py")


if __name__ == "__main__":
    main()
