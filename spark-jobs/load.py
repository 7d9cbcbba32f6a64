"""spark-submit spark-jobs/load.py [FILE.properties] [--set name=value] [--interval-ms N]

Loads new messages of the offline brokers' topics into the warehouse: once, or every interval until
SIGTERM. The same as `kafka2011 load`, under spark-submit.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    if str(ROOT) not in sys.path:  # a clone that is not installed
        sys.path.insert(0, str(ROOT))
    from kafka2011.services.warehouse.commands.load import app

    app(prog_name="load.py")


if __name__ == "__main__":
    main()
