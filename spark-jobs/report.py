"""spark-submit spark-jobs/report.py [FILE.properties] [--set name=value] [--json FILE]

Reports on a table of the warehouse: page views, visitors and bytes per hour, top paths, share of
errors. The logic is in `services.warehouse`; `kafka2011 report` is the same without spark-submit.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # a checkout that is not installed
    sys.path.insert(0, str(ROOT))

from kafka2011.cli.report import app  # noqa: E402

if __name__ == "__main__":
    app(prog_name="report.py")
