"""spark-submit spark-jobs/stream.py NAME [FILE.properties] [--set name=value] [--once]

Runs one stream job: windows, joins, the top items of each minute. The same as `kafka2011 stream`,
under spark-submit.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    if str(ROOT) not in sys.path:  # a clone that is not installed
        sys.path.insert(0, str(ROOT))
    from kafka2011.services.warehouse.commands.stream import app

    app(prog_name="stream.py")


if __name__ == "__main__":
    main()
