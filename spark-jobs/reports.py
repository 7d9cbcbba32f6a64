"""spark-submit spark-jobs/reports.py [NAME]... [--set name=value]

The reports on member activity: click-through, searches, co-viewed pages, sessions, abuse. The logic
is in `services.warehouse`; `kafka2011 reports` is the same without spark-submit.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # a checkout that is not installed
    sys.path.insert(0, str(ROOT))

from kafka2011.cli.reports import app  # noqa: E402

if __name__ == "__main__":
    app(prog_name="reports.py")
