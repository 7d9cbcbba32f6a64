"""spark-submit spark-jobs/load.py [FILE.properties] [--set name=value] [--interval-ms N]

Loads what is new in the offline brokers' topics into the warehouse: once, or every interval until
SIGTERM. The logic is in `services.warehouse`; `kafka2011 load` is the same without spark-submit.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # a checkout that is not installed
    sys.path.insert(0, str(ROOT))

from kafka2011.cli.load import app  # noqa: E402

if __name__ == "__main__":
    app(prog_name="load.py")
