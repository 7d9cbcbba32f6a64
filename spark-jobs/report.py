"""spark-submit spark-jobs/report.py [FILE.properties] [--set name=value] [--json [FILE.json]]

Reports on a table of the warehouse: page views, visitors and bytes per hour, top paths, share of
errors. The same as `kafka2011 report`, under spark-submit.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    if str(ROOT) not in sys.path:  # a clone that is not installed
        sys.path.insert(0, str(ROOT))
    from kafka2011.services.warehouse.commands.report import app

    app(prog_name="report.py")


if __name__ == "__main__":
    main()
